import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from memtier import __main__ as command_line
from memtier import activations, checkpoints, kv_cache, models, optimizer_state, training_data, weights
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
    assert "seconds to write: 49" in capsys.readouterr().out
    assert main(["checkpoint", "--model", "70e9", "--to", "micron-9550", "--writers", "64", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds to write"] == pytest.approx(0.98e12 / (64 * 10e9), rel=1e-3)


def test_data_prints_the_corpus_and_what_a_run_reads(capsys):
    asked = ["data", "--model", "llama-3.1-405b", "--tokens", "15e12", "--gpus", "16384", "--flops", "400e12", "--json"]
    assert main(asked) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["corpus"]["total"] == 60 * 10**12
    tokens = training_data.tokens_per_second("llama-3.1-405b", gpus=16384, flops=400e12)
    assert printed["bytes a second"] == round(4 * tokens)
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
    (["train", "--model", "70e9", "--limit", "80 Gb"], "argument --limit: a size is '80 Gb'; Gb means bits"),
    (["train", "--model", "70e9", "--limit", "1,92 GB"], "a size is '1,92 GB'; a comma only separates groups of three"),
    (["train", "--model", "70e9", "--limit", "1e-300"], "a size is '1e-300'; its number must be 0, or from 1e-30"),
    (["train", "--model", "70e9", "--limit", "1" * 400], "its number must be 0, or from 1e-30 to 1e+30"),
    (["train", "--model", "70e9", "--gpus", "1" * 5000], "its number must be 0, or from 1e-30 to 1e+30"),
    (["checkpoint", "--model", "70e9", "--to", "20 GB"], "argument --to: a rate is '20 GB'; write bytes a second"),
    (["serve", "--model", "gpt2", "--context", "1" + "0" * 400], "its number must be 0, or from 1e-30 to 1e+30"),
    (["serve", "--model", "gpt2", "--context", "1", "--users", "1.5"], "a count is '1.5'; write a whole number"),
    (["serve", "--model", "gpt2", "--context", "1", "--headroom", "-0.1"], "a number is '-0.1'; write digits"),
    (["data", "--model", "gpt2", "--tokens", "-1"], "argument --tokens: a count is '-1'; write a whole number"),
    (["data", "--model", "gpt2", "--tokens", "1", "--flops", "1e308"], "a number is '1e308'; its number must be 0"),
    (["data", "--model", "gpt2", "--tokens", "x" * 50_000], "write a whole number, such as 64"),
])
def test_what_cannot_be_read_is_refused_in_its_own_sentence(arguments, sentence, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    error = capsys.readouterr().err
    assert sentence in error.splitlines()[-1]
    assert len(error.splitlines()[-1]) < 300


@pytest.mark.parametrize("arguments", [
    ["train", "--model", "1e30", "--gpus", "1e30"],
    ["serve", "--model", "gpt2", "--context", "1e30", "--users", "1e30"],
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
