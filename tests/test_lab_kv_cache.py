"""The formulas against transformers' own caches, byte for byte; pages, tiers, processes against what they promise."""

import queue
import random
import subprocess

import kv_grid
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from memtier import kv_cache, models
from memtier.lab import kv_cache as lab

SAMPLE = [(3, 4, 0, "dynamic"), (1, 13, 0, "dynamic"), (2, 6, 2, "dynamic"), (2, 6, 1, "dynamic, no config"),
          (2, 7, 1, "static"), (2, 6, 2, "fp8")]  # fmt: skip
MLA = next(kv_grid.configs("deepseek_v3"))
CONTENT = bytes(range(100))


@pytest.fixture(autouse=True)
def _one_thread():
    """Small models run faster on one thread, and the processes of `share` use one as well."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# Bytes


@pytest.mark.parametrize("family", models.FAMILIES)  # their windows are 5 in the first shape, 1 in the second
def test_caches_and_weights_are_what_transformers_holds(family):
    cells = list(kv_grid.small_cells(family, cells=SAMPLE, shapes=(0, 1)))
    assert len(cells) >= 12
    assert [(what, expected) for what, expected, _ in cells] == [(what, found) for what, _, found in cells]


@pytest.mark.parametrize("family", models.FAMILIES)
def test_parameters_of_models_of_many_shapes(family):
    for what, expected, found in kv_grid.parameter_cells(family, count=3):
        assert expected == found, what


def test_a_model_of_full_size():
    for what, expected, found in kv_grid.full_size_cells("gemma3_text", cells=[(2, 4101, 1)]):
        assert expected == found, what


def test_the_grid_has_enough_cells():
    windowless = len(kv_grid.CELLS) - sum(cache == "fp8" for *_, cache in kv_grid.CELLS)
    assert 3 * windowless >= 40
    assert set(kv_grid.FULL_SIZE) == set(models.FAMILIES)
    assert all(models.get(name).family == family for family, name in kv_grid.FULL_SIZE.items())


def test_a_cache_shared_by_tensors_counts_once():
    class Layer:
        def __init__(self):
            whole = torch.zeros(2, 10)
            self.keys, self.values, self.more = whole[:, :4], whole[:, 4:6], [{"scale": torch.zeros(3)}]

    class Cache:
        layers = (Layer(),)

    assert lab.measured(Cache()) == lab.Measured(shown=4 * (8 + 4 + 3), storage=4 * (20 + 3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"decode": 16}, "decode is 16"), ({"cache": "paged"}, "cache is 'paged'"), ({"batch": 0}, "batch is 0")],
)
def test_fill_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        lab.fill(None, **arguments)


# With and without


@pytest.mark.parametrize("config", [None, MLA, next(kv_grid.configs("gemma2"))], ids=["llama", "deepseek_v3", "gemma2"])
def test_the_same_tokens_with_and_without_a_cache(config):
    model, architecture = lab.random_model(config), models.from_config(lab.SMALL if config is None else config)
    prompt = [3, 1, 4, 1, 5, 9, 2]
    cached, plain = lab.generate(model, prompt), lab.generate(model, prompt, cached=False)
    assert cached.tokens == plain.tokens
    assert len(cached.tokens) == 16
    assert cached.computed == 7 + 15
    assert plain.computed == sum(range(7, 7 + 16))
    assert plain.kept == 0
    assert cached.kept == kv_cache.inventory(architecture, sequence=22, dtype="fp32", last=1).total
    with pytest.raises(ValueError, match=r"prompt is \[\]"):
        lab.generate(model, [])


# Pages


@given(st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 3), max_size=20), st.integers(1, 5))
def test_blocks_have_the_same_name_only_behind_the_same_beginning(one, other, size):
    names = lab.chain(one, size), lab.chain(other, size)
    assert [len(each) for each in names] == [len(one) // size, len(other) // size]
    for number, pair in enumerate(zip(*names, strict=False), start=1):
        assert (pair[0] == pair[1]) == (one[:number * size] == other[:number * size])
    assert not set(names[0]) & set(lab.chain(one, size, "another model"))


def test_pages_share_a_prefix_and_copy_on_write():
    pages = lab.Pages(8, 4, (2,))
    first = pages.start()
    for token in range(6):
        pages.append(first, token, torch.tensor([token, -token]))
    assert pages.nbytes == 2 * 4 * 2 * 4
    second = pages.fork(first)
    assert pages.nbytes == 2 * 4 * 2 * 4
    pages.append(second, 60, torch.tensor([60, 0]))  # the half-full block is copied, the full one is not
    pages.append(first, 6, torch.tensor([6, 0]))
    assert pages.copied == 1
    assert pages.tables[first][0] == pages.tables[second][0]
    assert pages.tables[first][1] != pages.tables[second][1]
    assert pages.read(first)[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert pages.read(second)[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 60]
    third = pages.start([0, 1, 2, 3, 9, 9, 9, 9])
    assert pages.length(third) == 4
    assert pages.read(third)[:, 0].tolist() == [0, 1, 2, 3]


def test_a_finished_prefix_stays_findable_until_its_memory_is_needed():
    pages = lab.Pages(2, 2)
    first = pages.start()
    for token in (7, 8):
        pages.append(first, token, token)
    pages.finish(first)
    assert pages.nbytes == 0
    again = pages.start([7, 8, 9])
    assert pages.read(again).tolist() == [7, 8]
    pages.finish(again)
    other = pages.start()
    for token in (1, 2, 3):
        pages.append(other, token, token)
    assert pages.evicted == 1
    assert pages.length(pages.start([7, 8])) == 0


def test_when_no_block_is_free_nothing_changes():
    pages = lab.Pages(1, 2)
    first = pages.start()
    pages.append(first, 1, 1.0)
    second = pages.fork(first)
    with pytest.raises(MemoryError, match="all 1 blocks are in use"):
        pages.append(second, 2, 2.0)
    assert pages.tables == {first: [0], second: [0]}
    assert pages.read(second).tolist() == [1.0]
    pages.finish(first)
    pages.append(second, 2, 2.0)
    with pytest.raises(MemoryError):
        pages.append(second, 3, 3.0)
    assert pages.read(second).tolist() == [1.0, 2.0]


class PagesBesidePlainLists(RuleBasedStateMachine):
    """Whatever is started, forked, appended and finished: each sequence reads what plain lists say it should."""

    def __init__(self):
        super().__init__()
        self.pages, self.lists, self.seen = lab.Pages(7, 3), {}, [[]]

    def one(self, data):
        return data.draw(st.sampled_from(sorted(self.lists)))

    @rule(data=st.data(), more=st.lists(st.integers(0, 1), max_size=3))
    def start(self, data, more):
        tokens = data.draw(st.sampled_from(self.seen)) + more
        sequence = self.pages.start(tokens)
        found = self.pages.length(sequence)
        assert found % 3 == 0
        self.lists[sequence] = tokens[:found]

    @precondition(lambda self: self.lists)
    @rule(data=st.data(), tokens=st.lists(st.integers(0, 1), min_size=1, max_size=4))
    def append(self, data, tokens):
        sequence = self.one(data)
        for token in tokens:
            try:
                # what is kept for a token depends on all before it, as keys and values do
                self.pages.append(sequence, token, kept([*self.lists[sequence], token])[-1])
            except MemoryError:
                assert not self.pages.free
            else:
                self.lists[sequence] = [*self.lists[sequence], token]
        self.seen.append(self.lists[sequence])

    @precondition(lambda self: self.lists)
    @rule(data=st.data())
    def fork(self, data):
        sequence = self.one(data)
        self.lists[self.pages.fork(sequence)] = self.lists[sequence]

    @precondition(lambda self: self.lists)
    @rule(data=st.data())
    def finish(self, data):
        sequence = self.one(data)
        self.pages.finish(sequence)
        del self.lists[sequence]

    @invariant()
    def everyone_reads_their_own(self):
        for sequence, tokens in self.lists.items():
            assert self.pages.tokens[sequence] == tokens
            assert self.pages.read(sequence).tolist() == kept(tokens)

    @invariant()
    def blocks_are_accounted_for(self):
        listed = [block for table in self.pages.tables.values() for block in table]
        assert self.pages.uses == [listed.count(block) for block in range(7)]
        assert set(self.pages.free) == {block for block in range(7) if block not in listed}
        assert {name: block for block, name in self.pages.names.items()} == self.pages.named
        assert self.pages.nbytes == len(set(listed)) * 3 * 4


def kept(tokens):
    """A number for each token that depends on it and on all before it, exact in fp32."""
    return [float(int("1" + "".join(map(str, tokens[:end])), 2) % 2**20) for end in range(1, len(tokens) + 1)]


TestPagesBesidePlainLists = PagesBesidePlainLists.TestCase
TestPagesBesidePlainLists.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


# Blocks at rest


@given(st.binary(max_size=60), st.data())
def test_any_damage_is_seen(content, data):
    stored = lab.wrap("name", content)
    assert len(stored) == lab.HEADER + len(content)
    assert lab.unwrap("name", stored) == content
    place = data.draw(st.integers(0, len(stored) - 1))
    flipped = bytearray(stored)
    flipped[place] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(flipped), stored[:place], stored + b"\0"):
        with pytest.raises(lab.Corrupted):
            lab.unwrap("name", damaged)
    with pytest.raises(lab.Corrupted):
        lab.unwrap("another", stored)


@pytest.fixture(params=["memory", "disk", "file store", "memory store"])
def tier(request, tmp_path):
    return {"memory": lambda: lab.Memory(350), "disk": lambda: lab.Disk(tmp_path / "disk", 350),
            "file store": lambda: lab.Store((tmp_path / "store").as_uri()),
            "memory store": lambda: lab.Store(f"memory://{tmp_path.name}")}[request.param]()


def test_what_every_tier_does(tier):
    assert tier.get("a") is None
    assert tier.put("a", CONTENT) == []
    assert tier.get("a") == CONTENT
    assert tier.put("a", CONTENT[:50]) == []
    assert tier.get("a") == CONTENT[:50]
    tier.drop("a")
    tier.drop("a")
    assert tier.get("a") is None


def test_the_least_recently_used_are_evicted(tmp_path):
    for tier in (lab.Memory(350), lab.Disk(tmp_path, 350)):
        for name in "abc":
            assert tier.put(name, CONTENT) == []
        tier.get("a")
        assert tier.put("d", CONTENT) == ["b"]
        assert tier.put("e", bytes(340)) == ["c", "a", "d"]
        assert tier.put("f", bytes(400)) == ["e", "f"]
        assert [name for name in "abcdef" if tier.get(name) is not None] == []


def test_half_a_file_is_never_seen(tmp_path, monkeypatch):
    disk, store = lab.Disk(tmp_path / "disk", 1e9), lab.Store((tmp_path / "store").as_uri())

    def fails(*args):
        raise OSError("the process dies here")

    monkeypatch.setattr(type(store.files), "mv", fails)
    monkeypatch.setattr("pathlib.Path.replace", fails)
    for tier in (disk, store):
        with pytest.raises(OSError, match="dies here"):
            tier.put("a", CONTENT)
        assert tier.get("a") is None
    monkeypatch.undo()
    for tier in (disk, store):
        assert tier.put("a", CONTENT) == []
        assert tier.get("a") == CONTENT


def test_object_stores_need_no_renaming(tmp_path):
    assert lab.Store(tmp_path.as_uri()).renames
    assert not lab.Store("memory://somewhere").renames


# Prefill through tiers

PROMPTS = lab.prompts(3, 60, 32)


def three_tiers(folder):
    return [lab.Memory(1e9), lab.Disk(folder / "disk", 1e9), lab.Store((folder / "store").as_uri())]


@pytest.mark.parametrize("config", [None, MLA, next(kv_grid.configs("gpt2"))], ids=["llama", "deepseek_v3", "gpt2"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_hits_skip_prefill_and_logits_are_equal(config, dtype, tmp_path):
    tokens = [token % 32 for token in PROMPTS[0]]
    server = lab.Server(three_tiers(tmp_path), config=config, dtype=dtype)
    plain = lab.Server([], config=config, dtype=dtype).prefill(tokens)
    assert plain.computed == 60
    cold = server.prefill(tokens)
    assert (cold.computed, cold.fetched.total()) == (60, 0)
    assert torch.equal(cold.logits, plain.logits)
    every = server.tiers
    for count, name in ((3, "memory"), (2, "disk"), (1, "store")):
        server.tiers = every[3 - count:]
        warm = server.prefill(tokens)
        assert dict(warm.fetched) == {name: 3}
        assert warm.computed == 12
        assert torch.equal(warm.logits, plain.logits)
    size = kv_cache.stored(server.architecture, tokens=16, dtype=dtype)
    files = list((tmp_path / "store").iterdir())
    assert [path.stat().st_size for path in files] == [size + lab.HEADER] * 3


def test_chunks_give_the_logits_of_the_whole():
    server = lab.Server([])
    with torch.no_grad():
        whole = server.model(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1]
    torch.testing.assert_close(server.prefill(PROMPTS[0]).logits, whole)


def test_what_is_fetched_moves_up_and_a_shared_prefix_is_shared(tmp_path):
    tiers = three_tiers(tmp_path)
    lab.Server(tiers[2:]).prefill(PROMPTS[0])
    server = lab.Server(tiers)
    assert dict(server.prefill(PROMPTS[1]).fetched) == {"store": 2}
    assert dict(server.prefill(PROMPTS[2]).fetched) == {"memory": 2}
    other = lab.Server(tiers, seed=1)
    assert other.prefill(PROMPTS[0]).computed == 60  # other weights, other keys and values


def test_the_last_token_always_runs(tmp_path):
    server = lab.Server([lab.Memory(1e9)])
    cold, warm = server.prefill(PROMPTS[0][:32]), server.prefill(PROMPTS[0][:32])
    assert (cold.computed, warm.computed) == (32, 16)
    assert torch.equal(cold.logits, warm.logits)
    assert server.prefill([5]).computed == 1
    with pytest.raises(ValueError, match=r"tokens is \[\]"):
        server.prefill([])


@pytest.mark.parametrize("damage", ["truncated", "emptied", "flipped", "swapped"])
@pytest.mark.parametrize("where", ["disk", "store"])
def test_a_damaged_block_is_computed_again_and_repaired(where, damage, tmp_path):
    tiers = three_tiers(tmp_path)[1 if where == "disk" else 2:]
    server = lab.Server(tiers)
    cold = server.prefill(PROMPTS[0])
    first, second = (tmp_path / where / f"{name}.kv" for name in lab.chain(PROMPTS[0], 16, server.root)[:2])
    whole = second.read_bytes()
    second.write_bytes({"truncated": whole[:-7], "emptied": b"", "flipped": whole[:-1] + bytes([whole[-1] ^ 1]),
                        "swapped": first.read_bytes()}[damage])
    server.tiers = tiers[:1]
    found = server.prefill(PROMPTS[0])
    assert found.events == [("corrupted", where, second.stem)]
    assert found.computed == 12 + 16  # that block and the end; the blocks around it are fetched
    assert torch.equal(found.logits, cold.logits)
    assert second.read_bytes() == whole


def test_a_damaged_copy_is_replaced_from_the_tier_below(tmp_path):
    server = lab.Server(three_tiers(tmp_path)[1:])
    server.prefill(PROMPTS[0])
    for path in (tmp_path / "disk").iterdir():
        path.write_bytes(b"noise")
    found = server.prefill(PROMPTS[0])
    assert [(what, tier) for what, tier, _ in found.events] == [("corrupted", "disk")] * 3
    assert dict(found.fetched) == {"store": 3}
    assert dict(server.prefill(PROMPTS[0]).fetched) == {"disk": 3}


def test_eviction_is_visible(tmp_path):
    block = kv_cache.stored(models.from_config(lab.SMALL), tokens=16, dtype="fp32") + lab.HEADER
    server = lab.Server([lab.Memory(2 * block), lab.Disk(tmp_path, 4 * block)])
    names = lab.chain(PROMPTS[0], 16, server.root)
    assert server.prefill(PROMPTS[0]).events == [("evicted", "memory", names[0])]
    events = server.prefill(PROMPTS[1]).events
    assert {tier for what, tier, _ in events if what == "evicted"} == {"memory"}
    assert len(list(tmp_path.iterdir())) == 4


def test_windows_are_refused():
    with pytest.raises(ValueError, match="config is of gemma2 with sliding windows"):
        lab.Server([], config=next(kv_grid.configs("gemma2")))


def test_compare_predicted_and_measured(tmp_path):
    tiers = [lab.Memory(1e9), lab.Disk(tmp_path / "disk", 1e9),
             lab.Store((tmp_path / "store").as_uri(), latency=0.02, bandwidth=4e6)]
    server = lab.Server(tiers)
    found = lab.compare(server, PROMPTS[0])
    assert [each.tier for each in found] == ["memory", "disk", "store", "recompute"]
    assert [each.blocks for each in found] == [3, 3, 3, 4]
    assert all(each.nbytes == each.blocks * 16384 for each in found)
    assert all(each.predicted > 0 and each.measured > 0 for each in found)
    store = found[2]
    assert store.predicted == pytest.approx(3 * (0.02 + (16384 + lab.HEADER) / 4e6))
    assert store.measured >= 0.99 * store.predicted  # sleeping is never shorter than asked for
    assert server.tiers == tuple(tiers)
    with pytest.raises(ValueError, match="limit is 9 in tier 'memory'; it must be at least 49,260 bytes"):
        lab.compare(lab.Server([lab.Memory(9)]), PROMPTS[0])


def test_several_processes_share_a_store(tmp_path):
    """Forked here, where torch is imported already; that `share` does it from a process of its own, chapter 5 runs."""
    url = tmp_path.as_uri()
    done = lab.main(url, 3)
    alone = lab.answers(f"memory://{tmp_path.name}")
    assert len(done) == 3
    assert {each["digest"] for each in done} == {alone["digest"]}
    assert {each["corrupted"] for each in done} == {0}
    # six prompts of 100 tokens; whoever comes second to a block fetches it
    assert all(each["computed"] + 16 * each["fetched"] == 600 for each in done)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert len(files) == 4 + 6 * 2
    assert not [name for name in files if name.endswith(".part")]
    late = lab.answers(url)
    assert (late["fetched"], late["computed"], late["digest"]) == (36, 24, alone["digest"])


def test_a_failing_process_is_not_silent(monkeypatch):
    class Start:
        aborted = False

        def abort(self):
            self.aborted = True

    start, results = Start(), queue.SimpleQueue()
    with pytest.raises(ValueError, match="nowhere"):
        lab._answer("nowhere://at-all", start, results)
    assert start.aborted
    assert results.get().startswith("ValueError: ")
    monkeypatch.setattr(lab.subprocess, "run", lambda command, **options: subprocess.CompletedProcess(
        command, 1, "", "Traceback …\nRuntimeError: ValueError: nowhere\n"))
    with pytest.raises(RuntimeError, match="the processes failed: RuntimeError: ValueError: nowhere"):
        lab.share("nowhere://at-all")


def test_random_order_of_many_requests(tmp_path):
    """With tiers far too small, files damaged in between, every answer is still right."""
    server, plain = lab.Server([lab.Memory(4e4), lab.Disk(tmp_path, 1e5)]), lab.Server([])
    right = [plain.prefill(prompt).logits for prompt in PROMPTS]
    dice = random.Random(0)
    for _ in range(12):
        which = dice.randrange(3)
        assert torch.equal(server.prefill(PROMPTS[which]).logits, right[which])
        path = dice.choice(sorted(tmp_path.iterdir()))
        path.write_bytes(path.read_bytes()[:dice.randrange(200)])
