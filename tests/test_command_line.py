import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from memtier import __main__ as command_line
from memtier import activations, checkpoints, kv_cache, models, optimizer_state, training_data, units, weights
from memtier.__main__ import main

README = Path(__file__).parents[1] / "README.md"
WRITTEN = re.findall(r"^\s*(?:\S*/)?python -m memtier (.+)$", f"{README.read_text()}\n{command_line.__doc__}", re.M)

SMALL = {"model_type": "llama", "vocab_size": 100, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 1}


def test_the_readme_and_the_help_write_command_lines():
    assert len(WRITTEN) >= 8
    assert {line.split()[0] for line in WRITTEN} == {"train", "serve", "checkpoint", "data", "models", "tiers"}


@pytest.mark.parametrize("line", WRITTEN)
def test_every_command_line_written_anywhere_works(line, tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(models.get("llama-3.2-1b").config))
    arguments = [str(path) if word.endswith("/config.json") else word for word in shlex.split(line)]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed
    assert all(name in shown.out or "total" in answer for name, answer in printed.items())
    assert shown.err == ""


def test_train_prints_what_the_library_says(capsys):
    assert main(["train", "--model", "llama-3.1-70b", "--gpus", "64", "--limit", "80 GB", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    expected = optimizer_state.per_gpu("llama-3.1-70b", recipe="bf16-adam", gpus=64, stage=3)
    assert printed["one GPU"]["nbytes"] == dict(expected)
    assert printed["GPUs needed"] == optimizer_state.gpus_needed("llama-3.1-70b", recipe="bf16-adam", limit=80e9)


def test_train_adds_activations(capsys):
    asked = ["train", "--model", "llama-3.2-1b", "--sequence", "512", "--batch", "2", "--recompute", "full", "--json"]
    how = {"sequence": 512, "batch": 2, "recompute": "full"}
    assert main(asked) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["activations kept"]["nbytes"] == dict(activations.saved("llama-3.2-1b", **how))
    assert printed["activations at the fullest moment"]["total"] == activations.peak("llama-3.2-1b", **how).total
    assert main([*asked, "--stack", "megatron"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["activations kept"]["total"] == activations.saved("llama-3.2-1b", stack="megatron", **how).total
    assert "activations at the fullest moment" not in printed
    assert main(["train", "--model", "mixtral-8x7b", "--sequence", "128"]) == 0  # the family's own first stack
    assert "hf-sdpa-grouped" in capsys.readouterr().out


def test_serve_prints_what_the_library_says(capsys):
    how = {"limit": 80e9, "headroom": 0.1, "sequence": 8192}
    asked = ["serve", "--model", "llama-3.1-70b", "--context", "8192", "--limit", "80 GB", "--json"]
    assert main([*asked, "--users", "32", "--gpus", "8"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["weights"]["nbytes"] == dict(weights.inventory("llama-3.1-70b"))
    assert printed["KV cache"]["nbytes"] == dict(kv_cache.inventory("llama-3.1-70b", batch=32, sequence=8192))
    assert printed["users that fit"] == kv_cache.users("llama-3.1-70b", gpus=8, **how) == 162
    one = kv_cache.inventory("llama-3.1-70b", sequence=8192).total
    step = weights.decode("llama-3.1-70b", batch=32, gpus=8, kv=one)
    assert printed["tokens a second, at most"] == round(step.tokens_per_second)
    assert printed["bound by"] == "memory"
    assert main(asked[:-1]) == 0
    assert "bound by: memory" in capsys.readouterr().out


@pytest.mark.parametrize("users", [1, 32, 400])
def test_the_gpus_needed_to_serve_are_the_fewest_that_fit(users, capsys):
    assert main(["serve", "--model", "llama-3.1-70b", "--context", "8192", "--limit", "80 GB", "--users", str(users),
                 "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    needed, how = printed["GPUs needed"], {"limit": 80e9, "headroom": 0.1, "sequence": 8192}
    assert printed["users that fit"] >= users
    assert kv_cache.users("llama-3.1-70b", gpus=needed - 1, **how) < users


def test_serving_more_than_fit_says_how_many_would(capsys):
    assert main(["serve", "--model", "llama-3.1-8b", "--context", "131072", "--users", "9", "--gpus", "1"]) == 0
    printed = capsys.readouterr().out
    assert "users that fit" in printed
    assert "tokens a second" not in printed


def test_it_reads_a_config_json(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    assert main(["models", "--model", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == models.from_config(SMALL).parameters


def test_it_takes_a_parameter_count(capsys):
    assert main(["train", "--model", "70e9"]) == 0
    assert "1,120,000,000,000" in capsys.readouterr().out


def test_checkpoint_time_at_a_rate_and_at_a_tier(capsys):
    assert main(["checkpoint", "--model", "70e9", "--to", "20 GB/s"]) == 0
    assert "seconds to write: 49 (49 s)\n" in capsys.readouterr().out  # 0.98 TB at 20 GB/s
    assert main(["checkpoint", "--model", "70e9", "--to", "micron-9550", "--writers", "64", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds to write"] == pytest.approx(0.98e12 / (64 * 10e9), rel=1e-3)


def test_data_prints_the_corpus_and_what_a_run_reads(capsys):
    asked = ["data", "--model", "llama-3.1-405b", "--tokens", "15e12", "--gpus", "16384", "--flops", "400e12", "--json"]
    assert main(asked) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["corpus"]["total"] == 60 * 10**12
    tokens = training_data.tokens_per_second("llama-3.1-405b", gpus=16384, flops=400e12)
    assert printed["bytes a second"] == round(4 * tokens)
    assert main(asked[:-1]) == 0
    shown = capsys.readouterr().out
    assert f"({units.format_rate(4 * tokens)})" in shown  # with its unit, which the plain number lacks
    assert f"({units.format_time(15e12 / tokens)})" in shown
    assert main(["data", "--model", "70e9", "--tokens", "1e9", "--vocabulary", "32000"]) == 0
    assert "2,000,000,000" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["models", "tiers"])
def test_the_lists_have_a_line_for_each_entry(command, capsys):
    assert main([command]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 8
    assert any("llama-3.1-8b" in line or "h100-hbm" in line for line in lines)


@pytest.mark.parametrize("arguments", [
    ["train", "--model", "70e9", "--gpus", "0"],
    ["train", "--model", "nobody-knows-me"],
    ["train", "--model", "70e9", "--recipe", "magic"],
    ["train", "--model", "70e9", "--stage", "1", "--limit", "80 GB"],
    ["train", "--model", "1" * 400],
    ["serve", "--model", "gpt2", "--context", "512", "--accelerator", "x" * 3000],
    ["models", "--model", "/dev/zero"],
    ["models", "--model", str(Path(__file__).parent)],
    ["train", "--model", "70e9", "--recipe", "x" * 50_000],
    ["train", "--model", "70e9", "--recipe", "muon"],
    ["train", "--model", "70e9", "--limit", "1e-30"],
    ["models", "--model", "70e9"],
    ["train", "--model", "70e9", "--sequence", "512"],
    ["train", "--model", "gpt2", "--sequence", "512", "--stack", "flash"],
    ["serve", "--model", "70e9", "--context", "512"],
    ["serve", "--model", "gpt2", "--context", "0"],
    ["serve", "--model", "gpt2", "--context", "512", "--users", "0"],
    ["serve", "--model", "gpt2", "--context", "512", "--gpus", "0"],
    ["serve", "--model", "gpt2", "--context", "512", "--headroom", "1"],
    ["serve", "--model", "gpt2", "--context", "512", "--accelerator", "abacus"],
    ["serve", "--model", "gpt2", "--context", "512", "--kv-dtype", "int1"],
    ["data", "--model", "nobody-knows-me", "--tokens", "1e9"],
    ["data", "--model", "70e9", "--tokens", "1e9"],
    ["data", "--model", "70e9", "--tokens", "1e9", "--vocabulary", "0"],
    ["tiers", "--rung", "tape"],
    ["checkpoint", "--model", "70e9", "--contents", "everything"],
])
def test_bad_arguments_give_one_sentence(arguments, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("memtier: ")
    assert error.count("\n") == 1
    assert len(error) < 500


@pytest.mark.parametrize(("arguments", "sentence"), [
    (["train", "--model", "70e9", "--limit", "80 Gb"], "argument --limit: '80 Gb' is not a size: Gb means bits"),
    (["train", "--model", "70e9", "--limit", "banana"], "'banana' is not a size: write a number and a unit, such as"),
    (["train", "--model", "70e9", "--limit", "1,92 GB"], "'1,92 GB' is not a size: a comma only separates groups of"),
    (["train", "--model", "70e9", "--limit", "1e-300"], "'1e-300' is not a size: its number must be 0, or from 1e-30"),
    (["train", "--model", "70e9", "--limit", "1" * 400], "its number must be 0, or from 1e-30 to 1e+30"),
    (["train", "--model", "70e9", "--gpus", "1" * 5000], "its number must be 0, or from 1e-30 to 1e+30"),
    (["checkpoint", "--model", "70e9", "--to", "20 GB"], "argument --to: '20 GB' is not a rate: write bytes a second"),
    (["checkpoint", "--model", "70e9", "--to", "s3x"], "it is 's3x'; it must be the name of a known tier: the nearest "
                                                       "are s3, s3-express; or a rate such as '20 GB/s'"),
    (["checkpoint", "--model", "70e9", "--to", "zebra"], "tiers.names() lists them; or a rate such as '20 GB/s'"),
    (["serve", "--model", "gpt2", "--context", "1" + "0" * 400], "its number must be 0, or from 1e-30 to 1e+30"),
    (["serve", "--model", "gpt2", "--context", "1", "--users", "1.5"], "'1.5' is not a count: write a whole number"),
    (["serve", "--model", "gpt2", "--context", "1", "--headroom", "-0.1"], "'-0.1' is not a share: write a percentage"),
    (["data", "--model", "gpt2", "--tokens", "-1"], "argument --tokens: '-1' is not a count: write a whole number"),
    (["data", "--model", "gpt2", "--tokens", "1", "--flops", "1e308"], "'1e308' is not a number: its number must be"),
    (["data", "--model", "gpt2", "--tokens", "x" * 50_000], "write a whole number, such as 64"),
    (["x" * 20_000], "invalid choice: 'x"),
    (["tiers", "x" * 20_000], "unrecognized arguments: x"),
    (["tiers", "--" + "x" * 20_000], "unrecognized arguments: --x"),
])
def test_what_cannot_be_read_is_refused_in_its_own_sentence(arguments, sentence, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    error = capsys.readouterr().err
    assert sentence in error.splitlines()[-1]
    assert len(error.splitlines()[-1]) < 300


def test_a_command_line_of_many_words_is_not_said_again_in_full(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["tiers", *["x"] * 20_000])
    error = capsys.readouterr().err.splitlines()[-1]
    assert "unrecognized arguments: x x x" in error
    assert len(error) < 700


@pytest.mark.parametrize(("line", "sentence"), [
    ("train --model 70e9 --gpus 0", "--gpus is 0; it must be a whole number, 1 or more"),
    ("train --model 70e9 --stage 4", "--stage is 4; it must be one of 0, 1, 2, 3"),
    ("train --model 70e9 --gpus 8 --stage 4", "--stage is 4; it must be one of 0, 1, 2, 3"),
    ("train --model 70e9 --stage 2", "--stage changes nothing alone; give --gpus or --limit as well"),
    ("train --model 70e9 --gathered", "--gathered changes nothing alone; give --gpus or --limit as well"),
    ("train --model gpt2 --batch 0", "--batch is 0; it must be a whole number, 1 or more"),
    ("train --model gpt2 --batch 2", "--batch changes nothing alone; give --sequence as well"),
    ("train --model gpt2 --stack zz", "--stack is 'zz'; it must be one of hf-sdpa, "),
    ("train --model gpt2 --stack hf-sdpa", "--stack changes nothing alone; give --sequence as well"),
    ("train --model gpt2 --recompute zz", "--recompute is 'zz'; it must be one of none, selective, full"),
    ("train --model gpt2 --recompute full", "--recompute changes nothing alone; give --sequence as well"),
    ("train --model gpt2 --sequence 0", "--sequence is 0; it must be a whole number, 1 or more"),
    ("train --model gpt2 --sequence 1025", "--sequence is 1025; gpt2 has learnt 1,024 positions"),
    ("serve --model gpt2 --context 1025", "--context is 1025; gpt2 has learnt 1,024 positions"),
    ("serve --model gpt2 --context 0", "--context is 0; it must be a whole number, 1 or more"),
    ("serve --model gpt2 --context 9 --users 0", "--users is 0; it must be a whole number, 1 or more"),
    ("serve --model gpt2 --context 9 --gpus 0", "--gpus is 0; it must be a whole number, 1 or more"),
    ("serve --model gpt2 --context 9 --dtype int1", "--dtype is 'int1'; it must be one of fp32, "),
    ("serve --model gpt2 --context 9 --kv-dtype int1", "--kv-dtype is 'int1'; it must be one of fp32, "),
    ("serve --model gpt2 --context 9 --accelerator h100", "--accelerator is 'h100'; it must be the name of a known "),
    ("checkpoint --model 70e9 --writers 0", "--writers is 0; it must be a whole number, 1 or more"),
    ("checkpoint --model 70e9 --writers 2", "--writers changes nothing alone; give --to as well"),
    ("data --model gpt2 --tokens 0", "--tokens is 0; it must be a whole number, 1 or more"),
    ("data --model gpt2 --tokens 1 --gpus 8", "--gpus changes nothing alone; give --flops as well"),
    ("data --model 70e9 --tokens 1", "--model is '70e9'; a count has no vocabulary, so give --vocabulary as well"),
    ("train --model {", "--model: config is '{'; it must be JSON: "),
    ("train --model zebra", '--model is "zebra"; no such name in the registry'),
    ("models --model 70e9", "--model is '70e9'; a count has no parts, give a name or a config.json"),
])
def test_a_message_names_the_flag_that_was_typed(line, sentence, capsys):
    assert main(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"memtier: {sentence}")
    assert shown.out == ""


@pytest.mark.parametrize("written", ["0.1", ".1", "10%", "10 %", "10"])
def test_a_headroom_is_written_as_on_the_page(written, capsys):
    asked = ["serve", "--model", "llama-3.1-8b", "--context", "8192", "--gpus", "1", "--json"]
    assert main(asked) == 0
    usual = capsys.readouterr().out
    assert main([*asked, "--headroom", written]) == 0
    assert capsys.readouterr().out == usual


def test_a_wrapped_model_is_answered_in_words_that_hold_for_files_too(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gemma3", "text_config": SMALL}))
    assert main(["models", "--model", str(path)]) == 2
    assert capsys.readouterr().err.endswith("to count that one alone, paste only what stands under text_config\n")


def run(line, **how):
    command = f"{shlex.quote(sys.executable)} -m memtier {line}"
    return subprocess.run(["bash", "-c", command], capture_output=True, encoding="utf-8", errors="replace", **how)


@pytest.mark.parametrize("line", ["tiers | true; exit ${PIPESTATUS[0]}", "--help | true; exit ${PIPESTATUS[0]}",
                                  "models --json | head -1; exit ${PIPESTATUS[0]}", "tiers >&-"])
def test_a_reader_that_has_read_enough_is_no_error(line):
    ran = run(line)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_an_answer_that_cannot_be_written_is_told_in_one_sentence():
    ran = run("tiers > /dev/full")
    assert (ran.returncode, ran.stderr) == (1, "memtier: the answer could not be written: No space left on device\n")


@pytest.mark.parametrize("encoding", ["cp437", "ascii", "ascii:surrogateescape"])
def test_a_letter_that_the_terminal_lacks_stops_nothing(encoding, tmp_path):
    (tmp_path / "é×").mkdir()
    (tmp_path / "é×" / "config.json").write_text(json.dumps(SMALL))
    how = {"env": os.environ | {"PYTHONIOENCODING": encoding}}
    for line in ("tiers", f"train --model '{tmp_path}/é×' --sequence 100 --stack hf-eager"):
        ran = run(line, **how)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert len(ran.stdout.splitlines()) > 10
    ran = run(f"models --model '{tmp_path}/é'", **how)
    assert ran.returncode == 2
    assert ran.stderr.startswith("memtier: --model")


@pytest.mark.parametrize("arguments", [
    ["train", "--model", "1e30", "--gpus", "1e30"],
    ["serve", "--model", "llama-3.2-1b", "--context", "1e12", "--users", "1e30"],
    ["serve", "--model", "gpt2", "--context", "1", "--limit", "1e-30"],
    ["serve", "--model", "gpt2", "--context", "1", "--limit", "1e30 EB", "--users", "1e30"],
    ["checkpoint", "--model", "1e30", "--to", "1e-30 B/s"],
    ["data", "--model", "1e30", "--vocabulary", "2", "--tokens", "1e30", "--gpus", "1", "--flops", "1e-30"],
    ["data", "--model", "1", "--vocabulary", "2", "--tokens", "1", "--gpus", "1e30", "--flops", "1e30"],
])
@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_the_ends_of_what_can_be_read_are_answered(arguments, json_too, capsys):
    assert main([*arguments, *json_too]) == 0
    shown = capsys.readouterr().out.lower()
    assert not re.search(r"\b(inf|infinity|nan)\b", shown)


def test_counts_are_read_as_they_are_written(capsys):
    assert main(["train", "--model", "70 billion", "--gpus", "1,000", "--json"]) == 0
    named = json.loads(capsys.readouterr().out)
    assert main(["train", "--model", "70e9", "--gpus", "1000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == named


@pytest.mark.parametrize("json_too", [False, True])
def test_a_limit_that_cannot_be_met_leaves_what_was_computed(json_too, capsys):
    asked = ["train", "--model", "70e9", "--stage", "1", "--gpus", "8", "--limit", "80 GB"]
    assert main(asked + ["--json"] * json_too) == 2
    shown = capsys.readouterr()
    held = optimizer_state.per_gpu(70e9, recipe="bf16-adam", gpus=8, stage=1)
    if json_too:
        assert json.loads(shown.out)["one GPU"]["total"] == held.total
    else:
        assert str(held) in shown.out
    assert shown.err.startswith("memtier: limit is 80000000000 bytes; under stage 1 280,000,000,000 bytes stay")


def test_help_says_what_each_command_takes(capsys):
    for command, said in (("serve", "not a count"), ("checkpoint", ", ".join(checkpoints.CONTENTS))):
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        assert said in " ".join(capsys.readouterr().out.split())


def test_python_dash_m_works_and_shows_help():
    ran = subprocess.run([sys.executable, "-m", "memtier", "--help"], capture_output=True, text=True, check=True)
    assert "train" in ran.stdout
