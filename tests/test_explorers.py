"""Every explorer of the course: whatever a reader sets, it answers, and says what memtier says."""

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtier import evidence, live, models, optimizer_state, own_ladder, recipes, tiers, units
from memtier.live import explorers, jupyter, page
from memtier.live.controls import FileChoice, ModelChoice, NumberBox, Several, Slider
from memtier.live.explorers import optimizer_state as explorer_of_state
from memtier.live.explorers import tiers as explorer_of_tiers
from memtier.own_ladder import Measured, OwnLadder

EXPLORERS = [live.get(name) for name in live.names() if isinstance(live.get(name), live.Explorer)]
LADDER, SMALL_READS = live.get("tiers.ladder"), live.get("tiers.small_reads")
PER_GPU, OFFLOAD = live.get("optimizer_state.per_gpu"), live.get("optimizer_state.offload")
OWN = OwnLadder("2026-01-31", (Measured("CPU DRAM", "copy", 11e9), Measured("NVMe", "sequential read", 1.5e9),
                               Measured("NVMe", "small read", 40e6, 100e-6, request=4096),
                               Measured("HBM", "copy", 1.2e12), Measured("PCIe", "to device", 24e9)))

NONSENSE = ("", "-1", "0", "1e999", "nan", "inf", "a lot", "1" * 400, "9" * 400, "1e-320", "1e308", "1e30", "1,5",
            "<b>", "{}", "[]", '{"model_type": 3}')

# Exponents, shares of more than there is, and one of many.
MISSAID = (r"\de[+-]\d|(?<![\d.])\d{4,} % of|"
           r"(?<![\d.,×–] )(?<![\d.,×–])1 (parameters|samples|tokens|days|years|times|GPUs|epochs|users|requests)\b")

every_explorer = pytest.mark.parametrize("explorer", EXPLORERS, ids=lambda explorer: explorer.name)


def raw(explorer, **values):
    """What a front sends when the controls show these values."""
    shown = explorer.defaults | values
    return {control.name: control.write(shown[control.name]) for control in explorer.controls}


def answer(explorer, do="", state=None, **values):
    """The reply to an ask that went through JSON both ways."""
    ask = {"name": explorer.name, "do": do, "values": raw(explorer, **values), "state": state or {}}
    return json.loads(live.answer(json.dumps(ask)))


def say(explorer, **values):
    return answer(explorer, **values)["say"]


@every_explorer
def test_an_explorer_is_declared_as_the_course_wants_it(explorer):
    assert live.get(explorer.name) is explorer
    assert sum(not control.more for control in explorer.controls) <= 3
    assert explorer.predict is not None
    assert len(explorer.presets) >= 3
    assert explorer.intro.endswith(".")
    kind = explorer.name.split(".")[0]
    assert (Path(explorers.__file__).parent / f"{kind}.py").is_file()


@every_explorer
def test_every_preset_and_every_extreme_answers(explorer):
    for number, (name, values) in enumerate(explorer.presets.items()):
        pressed = answer(explorer, do=f"preset {number}")
        assert pressed["say"] == explorer.view(**explorer.defaults | values).say, name
        assert pressed == answer(explorer, **values)
    for control in explorer.controls:
        for value in control.extremes:
            reply = answer(explorer, **{control.name: value})
            assert "error" not in reply or "recipe is" in reply["error"], (control.name, value, reply)
            if "say" in reply:
                assert re.search(r"\d", reply["say"])
                assert "nan" not in reply["say"] + reply["slots"]["view"]
                assert not re.search(MISSAID, reply["say"] + reply["slots"]["view"]), (control.name, value)


@every_explorer
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_combination_answers_in_one_sentence(explorer, data):
    values = {}
    for control in explorer.controls:
        among = control.stops if isinstance(control, Slider) else control.extremes
        values[control.name] = data.draw(st.sampled_from(among), label=control.name)
    reply = answer(explorer, **values)
    if "error" in reply:  # a count where a recipe needs shapes, adapters where a model has no such tensors
        assert re.match(r"(recipe|targets) is ", reply["error"])
        assert "\n" not in reply["error"]
    else:
        assert reply["slots"]["view"].count("<svg role=") >= 1
        assert not re.search(MISSAID, reply["say"] + reply["slots"]["view"])


@every_explorer
def test_nothing_typed_into_a_box_breaks_it(explorer):
    for control in explorer.controls:
        for part in control.parts:
            if part.kind not in ("text", "area"):
                continue
            for text in NONSENSE:
                typed = raw(explorer)
                typed[control.name] |= {part.name: text, "last": part.name}
                if part.when:
                    typed[control.name][part.when[0]] = part.when[1]
                reply = json.loads(live.answer(json.dumps({"name": explorer.name, "values": typed})))
                assert "could not work this out" not in reply.get("error", ""), (control.name, text)
                if "invalid" in reply:
                    assert list(reply["invalid"]) == [control.name]
                    assert "\n" not in reply["invalid"][control.name]
                    assert len(reply["invalid"][control.name]) < 400
                else:
                    assert "<b>" not in reply["say"]


@every_explorer
def test_a_guess_is_revealed_beside_the_truth(explorer):
    prediction = explorer.predict
    for guess in prediction.control.extremes:
        chosen = raw(explorer) | {"guess": prediction.control.write(guess)}
        reply = json.loads(live.answer(json.dumps({"name": explorer.name, "do": "guess", "values": chosen})))
        truth = prediction.truth(explorer.defaults | prediction.values)
        assert prediction.low < truth < prediction.high
        assert prediction.reveal(guess, explorer.defaults | prediction.values) in (
            re.sub("</?strong>", "**", re.sub("</?p>", "", reply["slots"]["reveal"])))
        assert reply["hidden"] == {"predict": True}
        assert "your guess" in reply["slots"]["view"]
        moved = explorer.respond({"state": reply["state"], "values": raw(explorer)})  # what was not asked has no mark
        assert "your guess" not in moved["slots"]["view"]
        back = explorer.respond({"state": reply["state"], "values": reply["controls"]})
        assert "your guess" in back["slots"]["view"]
    assert explorer.defaults != explorer.defaults | prediction.values  # the first frame does not give it away


@every_explorer
def test_a_page_of_it_is_light_and_always_the_same(explorer):
    html = explorer._repr_mimebundle_()["text/html"]
    assert html == page.render(explorer) == page.render(explorer)
    assert len(html.encode()) < 150_000
    assert not re.search(r"https?://(?!www\.w3\.org)", html)


@every_explorer
def test_jupyter_shows_what_the_page_shows(explorer):
    shown = jupyter.Front(explorer)
    assert explorer.respond({})["slots"]["view"] in shown.slots["view"].value
    slider = next(control for control in explorer.controls if isinstance(control, Slider) and not control.more)
    handle = shown.inputs[slider.name]["at"].widget
    handle.value = handle.max if handle.value < handle.max else handle.min
    moved = slider.stops[handle.value]
    assert explorer.view(**explorer.defaults | {slider.name: moved}).html in shown.slots["view"].value


@every_explorer
def test_an_answer_takes_a_moment_only(explorer):
    """A page answers in under 50 ms; compiled Python in a browser is some three to five times slower than here."""
    answer(explorer)  # what is read once, from files
    stops = next(control for control in explorer.controls if isinstance(control, Slider) and not control.more)
    times = []
    for value in stops.stops[:15]:
        began = time.process_time()
        answer(explorer, **{stops.name: value})
        times.append(time.process_time() - began)
    assert sorted(times)[7] < 0.05


def test_controls_cover_what_is_declared():
    kinds = {type(control) for explorer in EXPLORERS for control in explorer.controls}
    assert {Slider, ModelChoice, FileChoice} <= kinds
    assert not {NumberBox, Several} & kinds  # those belong to questions


@pytest.mark.parametrize(("name", "values", "words"), [
    ("kv_cache.users", {"model": "gemma-2-9b"}, 8192), ("kv_cache.fetch", {"model": "gemma-2-9b"}, 8192),
    ("activations.saved", {"model": "gemma-2-9b"}, 8192), ("weights.decode", {"model": "gemma-2-9b"}, 8192)])
def test_a_sequence_longer_than_a_model_was_made_for_is_told(name, values, words):
    explorer = live.get(name)
    length = next(each for each in ("context", "tokens", "sequence") if each in explorer.defaults)
    told = f"beyond the {words:,} tokens this model was made for"
    assert models.get(values["model"]).positions == words
    assert told not in explorer.view(**explorer.defaults | values | {length: words}).note
    assert told in explorer.view(**explorer.defaults | values | {length: 2 * words}).note


def test_more_time_lost_than_there_is_is_said_so():
    failing, saving, waiting = (live.get(name) for name in ("recovery.failures", "recovery.interval",
                                                            "checkpoints.drain"))
    lost = say(failing, gpus=131072, one=failing.controls[1].low, restart=3600)
    assert lost.endswith("h, more than there is.")
    assert "loses more time than there is. The best" in say(saving, interval=10, write=3600)
    assert re.search(r"waited (more time than there is|\d+(\.\d+)? % of its time)\.", say(
        waiting, interval=10, asynchronous=False, local=1e9, nodes=1))


def test_one_of_many_is_one():
    assert say(PER_GPU, model=1).startswith("1 parameter,")
    assert "in 1 day." in say(live.get("recovery.failures"), days=1)
    assert re.search(r"saved 980 GB once and waited", say(live.get("checkpoints.drain"), interval=2000))


# The ladder

def test_the_ladder_gives_the_times_of_chapter_0():
    sentence = say(LADDER, nbytes=140e9)
    for name, words in (("h100-hbm", "41.8 ms from HBM"), ("micron-9550", "10 s from one NVMe drive")):
        assert words in sentence
        assert units.format_time(tiers.get(name).read_time(140e9)) == words.split(" from")[0]
    assert "2.22 s over PCIe 5 x16" in sentence
    assert "26.7 min from object storage over 1 connection." in sentence
    assert "The slowest tier now beats the PCIe link." not in sentence
    many = say(LADDER, nbytes=140e9, streams=1000)
    assert "1.75 s from object storage over 1,000 connections" in many
    assert "The slowest tier now beats the PCIe link." in many


def test_every_rung_of_the_ladder_is_drawn_and_what_is_announced_says_so():
    view = LADDER.view(**LADDER.defaults)
    names = [row[0] for row in view.figures[0].rows]
    assert len(names) == len(tiers.RUNGS) + 1  # and the link
    for tier in tiers.ladder():
        assert any(tier.title in name or tier.name == "s3-connection" for name in names)
        assert (tier.status == "announced") == any(tier.title in name and "announced" in name for name in names)
    held = [row[0] for row in LADDER.view(**LADDER.defaults | {"nbytes": 140e9}).figures[1].rows]
    assert [name for name in held if "too small" in name] == ["SRAM: too small", "L2: too small", "HBM: too small"]


@pytest.mark.parametrize("nbytes", [4e3, 64e3, 1e6, 1e9, 10e12])
def test_an_unknown_latency_never_counts_as_none(nbytes):
    """4 KB over 2 TB/s are 2 ns, but asking a file server takes milliseconds (the ledger: 2.3 ms to open a file)."""
    seconds = {row.name: explorer_of_tiers._seconds(row, nbytes, 1) for row in explorer_of_tiers._rows()}
    assert seconds["tectonic"] > seconds["h100-sram"]
    assert seconds["tectonic"] > evidence.get("pfs.open-call.latency").quantity
    assert seconds["pcie5-x16"] > seconds["h100-hbm"]


def test_a_page_is_read_in_the_order_of_the_chapter():
    """From HBM before PCIe, a drive and object storage; 4 KB: 288 ns + 4000/3.35e12, 350 ns + 4000/63e9."""
    sentence = say(LADDER, nbytes=4e3)
    assert "289 ns from HBM, 413 ns over PCIe 5 x16, 60.3 µs from one NVMe drive and 150 ms" in sentence
    note = LADDER.view(**LADDER.defaults | {"nbytes": 4e3}).note
    assert "PCIe 5 x16 borrows that of memory behind a PCIe connector (350 ns, derived)" in note
    assert "Meta Tectonic, sustained borrows that of opening a file on Lustre (2.3 ms, measured)" in note


def test_each_row_without_a_latency_says_what_it_borrows():
    rows = explorer_of_tiers._rows()
    assert {row.name for row in rows if row.latency is None} == set(explorer_of_tiers.BORROWED)


def test_many_connections_need_several_machines():
    limit = evidence.get("object.s3.instance").quantity
    most = tiers.streams_needed(limit, tiers.get("s3-connection").read)
    assert "several machines" not in LADDER.view(**LADDER.defaults | {"streams": most}).note
    assert f"some {most} connections" in LADDER.view(**LADDER.defaults | {"streams": most + 1}).note


def test_a_readers_own_ladder_stands_beside_the_datasheets():
    chosen = raw(LADDER, nbytes=140e9) | {"own": {"choice": "own", "config": json.dumps(OWN.to_dict())}}
    reply = json.loads(live.answer(json.dumps({"name": LADDER.name, "values": chosen})))
    html = reply["slots"]["view"]
    assert "your machine" in html
    assert "2026-01-31" in html
    for rate in (11e9, 1.5e9, 1.2e12, 24e9):
        assert units.format_time(tiers.transfer_time(140e9, rate)) in html
    assert reply["controls"]["own"] == {"choice": "own"}
    none_of_it = OwnLadder("2026-01-31", (Measured("CPU cache", "copy", 1e11),))
    assert "your machine" not in LADDER.view(**LADDER.defaults | {"own": none_of_it}).figures[0].header


@pytest.mark.parametrize(("text", "words"), [("", "empty"), ("{", "must be JSON"), ("{}", "own-ladder"),
                                             ('{"memtier": "own-ladder", "version": 99}', "version is 99")])
def test_a_file_that_is_no_ladder_is_refused_in_a_sentence(text, words):
    chosen = raw(LADDER) | {"own": {"choice": "own", "config": text}}
    reply = json.loads(live.answer(json.dumps({"name": LADDER.name, "values": chosen})))
    assert words in reply["invalid"]["own"]
    assert "\n" not in reply["invalid"]["own"]


# Small reads

def test_small_reads_give_the_moment_of_chapter_1():
    drive = tiers.get("micron-9550")
    assert say(SMALL_READS) == "1 GiB at a time reaches 14 GB/s, all the drive has."
    reached = tiers.small_read_bandwidth(4096, drive.latency, drive.read)
    assert units.format_rate(reached) == "67.9 MB/s"
    needed = tiers.in_flight_needed(4096, drive.latency, drive.read)
    assert say(SMALL_READS, request=4096) == (
        f"4 KiB at a time reaches 67.9 MB/s, 206 times less than the drive's 14 GB/s; {needed} in flight are enough.")
    assert say(SMALL_READS, request=4096, in_flight=206).endswith("14 GB/s, all the drive has.")


def test_a_readers_disk_is_a_dot_among_small_reads():
    view = SMALL_READS.view(**SMALL_READS.defaults | {"own": OWN})
    assert ("your disk", "4 KiB", "40 MB/s") in view.figures.rows
    timed = OwnLadder("2026-01-31", (Measured("NVMe", "small read", None, 100e-6, request=4096, in_flight=4),))
    assert ("your disk", "4 KiB", units.format_rate(4 * 4096 / 100e-6)) in (
        SMALL_READS.view(**SMALL_READS.defaults | {"own": timed}).figures.rows)
    without = OwnLadder("2026-01-31", (Measured("CPU DRAM", "copy", 1e10),))
    assert "no small reads" in SMALL_READS.view(**SMALL_READS.defaults | {"own": without}).note


def test_a_drive_without_a_latency_is_not_offered():
    (drives,) = [control for control in SMALL_READS.controls if control.name == "drive"]
    known = {name: tiers.get(name) for name in tiers.names("NVMe")}
    assert set(drives.options) == {name for name, drive in known.items() if drive.latency and drive.read}


# State on each GPU

@pytest.mark.parametrize(("gpus", "stage", "gigabytes"), [
    (8, 0, 1120), (8, 1, 385), (8, 2, 262.5), (8, 3, 140), (64, 1, 293.1), (64, 2, 155.3), (64, 3, 17.5),
    (512, 1, 281.6), (512, 2, 141.9), (512, 3, 2.188)])
def test_state_on_each_gpu_is_that_of_the_course_table(gpus, stage, gigabytes):
    sentence = say(PER_GPU, gpus=gpus, stage=stage)
    assert f"{units.format_bytes(gigabytes * 1e9, digits=4)} of state on each GPU" in sentence
    assert ("fits into 80 GB" in sentence) == (gigabytes <= 80)


def test_a_running_layer_adds_what_is_gathered():
    held = optimizer_state.per_gpu("llama-3.1-70b", recipe="bf16-adam", gpus=512, stage=3, gathered=True)
    sentence = say(PER_GPU, model="llama-3.1-70b", gpus=512, stage=3, layer=True)
    assert f"{units.format_bytes(held.total, digits=4)} of state on the fullest GPU while a layer runs" in sentence
    needed = optimizer_state.gpus_needed("llama-3.1-70b", recipe="bf16-adam", stage=3, limit=80e9, gathered=True)
    assert f"{needed} GPUs are enough" in sentence
    assert "choose a model" in PER_GPU.view(**PER_GPU.defaults | {"stage": 3, "layer": True}).note
    assert "Stage 3 alone" in PER_GPU.view(**PER_GPU.defaults | {"stage": 1, "layer": True}).note


def test_gpus_needed_are_those_of_the_formula_or_none_is_enough():
    needed = optimizer_state.gpus_needed(70e9, recipe="bf16-adam", stage=3, limit=80e9)
    assert f"{needed} GPUs are enough" in say(PER_GPU, stage=3)
    assert "no number of GPUs is enough, since 280 GB stay on each" in say(PER_GPU, stage=1)
    # Mixtral's experts are one tensor of eight rows: FSDP2 cannot give a rank less than one of them.
    least = optimizer_state.per_gpu("mixtral-8x7b", recipe="bf16-adam", gpus=2**60, stage=3).total
    assert f"since {units.format_bytes(least, digits=4)} stay on the fullest one" in (
        say(PER_GPU, model="mixtral-8x7b", stage=3))
    assert "one GPU is enough" in say(PER_GPU, model="gpt2")


@pytest.mark.parametrize("name", ["bf16-adam", "fsdp2-adam", "muon"])
@pytest.mark.parametrize("rows", ["max", "average"])
def test_a_named_model_is_counted_as_asked(name, rows):
    held = optimizer_state.per_gpu("llama-3.1-8b", recipe=name, gpus=48, stage=3, rank=rows)
    chosen = {"model": "llama-3.1-8b", "gpus": 48, "stage": 3, "recipe": name, "rows": rows}
    view = PER_GPU.view(**PER_GPU.defaults | chosen)
    assert units.format_bytes(held.total, digits=4) in view.say
    (bar,) = view.figures[0].rows
    assert view.figures[0].header[1:] == (*held, "total", "80 GB of HBM")
    assert bar[1:-2] == tuple(units.format_bytes(nbytes, digits=4) for nbytes in held.values())


def test_a_recipe_that_needs_shapes_says_so_for_a_count():
    reply = answer(PER_GPU, recipe="adafactor")
    assert reply["error"].startswith("recipe is 'adafactor'")
    assert "error" not in answer(PER_GPU, recipe="adafactor", model="llama-3.1-8b")


def test_the_curves_are_those_of_the_formula():
    spread = PER_GPU.view(**PER_GPU.defaults).figures[1]
    shown = {(row[0], row[1]): row[2] for row in spread.rows}
    for stage in (0, 1, 2):
        total = optimizer_state.per_gpu(70e9, recipe="bf16-adam", gpus=16384, stage=stage).total
        assert shown[f"ZeRO-{stage}", "16,384"] == units.format_bytes(total, digits=4)


def test_a_readers_own_model_is_counted():
    own = models.get("llama-3.2-1b").config
    chosen = raw(PER_GPU) | {"model": {"choice": "own", "config": json.dumps(own)}}
    sentence = json.loads(live.answer(json.dumps({"name": PER_GPU.name, "values": chosen})))["say"]
    held = optimizer_state.per_gpu(models.from_config(own), recipe="bf16-adam", gpus=8, stage=1)
    assert units.format_bytes(held.total, digits=4) in sentence


# Offload

def test_offload_as_the_question_is_usually_put_and_what_is_wrong_with_it():
    usual = say(OFFLOAD)
    assert "840 GB of master weights and moments come up in 933 ms" in usual
    assert "840 GB do not fit into 512 GB of host memory" in usual
    assert "both directions together" in OFFLOAD.view(**OFFLOAD.defaults).note
    assert "come up in 13.3 s" in say(OFFLOAD, link="pcie5-x16")
    real = say(OFFLOAD, link="pcie5-x16", update="cpu")
    assert "140 GB of gradients go down in 2.22 s, 140 GB of weights come up in 2.22 s" in real
    assert "1.96 TB in 3.59 s" in real
    assert "980 GB fit into 2.048 TB" in say(OFFLOAD, update="cpu", memories=4)


@pytest.mark.parametrize("update", ["cpu", "gpu"])
@pytest.mark.parametrize("recipe", ["bf16-adam", "sgd-momentum"])
def test_offload_says_and_draws_what_the_formula_gives(update, recipe):
    chosen = {"recipe": recipe, "link": "pcie5-x16", "update": update, "overlap": 0.5, "links": 2, "memories": 2}
    moved = optimizer_state.offload("llama-3.1-8b", memory="grace-lpddr5x", **chosen)
    view = OFFLOAD.view(**OFFLOAD.defaults | {"model": "llama-3.1-8b"} | chosen)
    assert f"the step waits {units.format_time(moved.exposed_seconds)}" in view.say
    across, stays, when = view.figures
    assert across.rows[0][-1] == units.format_bytes(moved.down + moved.up)
    assert stays.rows[0][-2:] == (units.format_bytes(moved.needed), units.format_bytes(moved.capacity))
    assert when.rows[-1][-1] == units.format_time(moved.exposed_seconds)
    assert "50 % of the link's time is hidden" in view.note


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["cpu", "gpu"]), st.floats(0, 1), st.sampled_from(["pcie4-x16", "pcie5-x16", "nvlink-c2c"]),
       st.sampled_from([1, 4, 1024]), st.sampled_from(["bf16-adam", "fp32-adam"]))
def test_the_timeline_of_an_update_ends_when_the_waiting_and_what_is_hidden_end(update, overlap, link, links, recipe):
    moved = optimizer_state.offload(70e9, recipe=recipe, link=link, memory="grace-lpddr5x", update=update,
                                    overlap=overlap, links=links)
    lanes = dict(explorer_of_state._lanes(moved))
    ((_, begins, waits),) = lanes.pop("what the step waits for it")
    computes = {what: (start, seconds) for what, start, seconds in lanes.pop("GPU, at work meanwhile", [])}
    end = max(start + seconds for spans in lanes.values() for _, start, seconds in spans)
    assert waits == moved.exposed_seconds
    assert sum(computes.get("backward pass", (0, 0))) == begins  # from then on the step waits,
    after = begins + waits
    if "next forward pass" in computes:  # and if something still crosses then, behind the next pass
        assert computes["next forward pass"][0] == after
        after = sum(computes["next forward pass"])
    assert after == pytest.approx(end, rel=1e-8)
    if update == "cpu":  # nothing comes up before its update can have begun, nor all of it before the update's end
        (_, arrived, updating), (_, rises, rising) = lanes["CPU memory, the update"][0], lanes["link, up to the GPU"][0]
        assert arrived <= rises
        assert rises + rising >= arrived + updating - 1e-9


@pytest.mark.parametrize("chosen", [{"update": "cpu", "link": "pcie4-x16", "overlap": 1}, {"overlap": 0.5}])
def test_the_spans_of_an_update_have_colours_of_their_own(chosen):
    legend = OFFLOAD.view(**OFFLOAD.defaults | chosen).figures[2].legend
    assert {"backward pass", "next forward pass", "waiting"} <= {name for name, _ in legend}
    assert len({look[-8:].strip("),") for _, look in legend}) == len(legend)


def test_host_memory_slower_than_the_links_is_said():
    # 840 GB at 546 GB/s are 1.54 s, read and then written; 1,024 links would take 1.82 ms
    view = OFFLOAD.view(**OFFLOAD.defaults | {"link": "nvlink-c2c", "links": 1024})
    assert "1.82 ms over the link, but the host memory takes 1.54 s to read them and 1.54 s to write them" in view.say
    assert "the step waits 3.08 s" in view.say
    assert "The update moves 1.68 TB through it, 3.08 s" in view.note
    assert "memory takes" not in say(OFFLOAD, link="pcie5-x16")


def test_without_master_weights_the_weights_stay_in_host_memory():
    _, stays, _ = OFFLOAD.view(**OFFLOAD.defaults | {"recipe": "fp32-adam", "update": "cpu"}).figures
    assert stays.header[1:4] == ("weights", "optimizer", "gradients")
    assert stays.rows[0][1:5] == ("280 GB", "560 GB", "280 GB", "1.12 TB")
    assert "560 GB of moments come up" in say(OFFLOAD, recipe="fp32-adam")


@pytest.mark.parametrize(("model", "chosen"), [
    ("llama-3.1-70b", {"stage": 3, "gpus": 512, "layer": True}), ("mixtral-8x7b", {"stage": 3, "gpus": 48}),
    (70e9, {"stage": 1, "gpus": 12}), ("llama-3.1-8b", {"stage": 2, "gpus": 24, "rows": "average"})])
def test_the_point_lies_on_the_curve_of_its_stage(model, chosen):
    spread = PER_GPU.view(**PER_GPU.defaults | {"model": model} | chosen).figures[1]
    *_, (here, gpus, held) = spread.rows
    assert here == "here"
    curves = explorer_of_state._curves(models.resolve(model), "bf16-adam",
                              "average" if isinstance(model, float) else chosen.get("rows", "max"),
                              chosen.get("layer", False), chosen["gpus"])
    (on_it,) = [total for n, total in dict(curves)[f"ZeRO-{chosen['stage']}"] if n == chosen["gpus"]]
    assert (gpus, held) == (f"{chosen['gpus']:,}", units.format_bytes(on_it, digits=4))


def test_a_preset_that_takes_another_model_says_so():
    running = PER_GPU.view(**PER_GPU.defaults | PER_GPU.presets["ZeRO-3, layer running"])
    assert "llama-3.1-70b has 70.55 billion parameters; at rest its state is 2.205 GB here" in running.note


def test_what_a_guess_was_about_stays_beside_it():
    told = PER_GPU.predict.reveal(35e9, PER_GPU.defaults | PER_GPU.predict.values)
    assert "under ZeRO-1 on 512 GPUs: 64 times the GPUs took off only 27 %" in told
    assert "when the CPU updates 70 billion parameters" in OFFLOAD.predict.lesson


def test_the_choices_offered_are_those_the_formulas_take():
    offered = {control.name: control for control in OFFLOAD.controls}
    for name in offered["memory"].options:
        assert tiers.get(name).rung == "CPU DRAM"
    assert set(offered["recipe"].options) == set(recipes.names()) - {"inference"}  # which has no update to offload
    (gpus,) = [control for control in PER_GPU.controls if control.name == "gpu"]
    assert set(gpus.options) == set(tiers.accelerators())


def test_a_measured_ladder_reads_back_as_a_file_choice():
    assert LADDER.read([control for control in LADDER.controls if control.name == "own"], {
        "own": {"choice": "own", "config": json.dumps(OWN.to_dict())}}) == ({"own": own_ladder.read(OWN.to_dict())}, {})
