"""Every explorer over a reader's own small models: it answers, or says in a sentence what it needs."""

import json

import pytest

from memtier import live
from memtier.live.controls import ModelChoice

EXPLORERS = [live.get(name) for name in live.names() if isinstance(live.get(name), live.Explorer)]
WITH_A_MODEL = [explorer for explorer in EXPLORERS if any(isinstance(each, ModelChoice) for each in explorer.controls)]
GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 2, "vocab_size": 30}
LLAMA = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 3,
         "intermediate_size": 5}
CONFIGS = {f"gpt2 with {n} positions": GPT2 | {"n_positions": n} for n in (1, 2, 3, 4, 16, 127, 128, 129, 256, 1024)}
CONFIGS |= {f"llama made for {n}": LLAMA | {"max_position_embeddings": n} for n in (1, 16, 129)}
CONFIGS |= {
    "a window of 1": LLAMA | {"model_type": "mistral", "sliding_window": 1},
    "one layer, one head, one number": LLAMA | {"hidden_size": 2, "num_attention_heads": 1, "intermediate_size": 1},
    "two experts": LLAMA | {"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 1},
    "an expert, always": LLAMA | {"model_type": "mixtral", "num_local_experts": 1, "num_experts_per_tok": 1},
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("explorer", WITH_A_MODEL, ids=lambda explorer: explorer.name)
def test_a_readers_small_model_is_answered(explorer, config):
    shown = {control.name: control.write(control.default) for control in explorer.controls}
    name = next(control.name for control in explorer.controls if isinstance(control, ModelChoice))
    for control in explorer.controls:
        for value in ((control.extremes[0], control.extremes[-1]) if control.name != name else ("as it opens",)):
            asked = shown if control.name == name else shown | {control.name: control.write(value)}
            asked = asked | {name: {"choice": "own", "config": json.dumps(config)}}
            reply = json.loads(live.answer(json.dumps({"name": explorer.name, "values": asked})))
            told = reply.get("error") or " ".join(reply.get("invalid", {}).values()) or reply["say"]
            where = (control.name, value, told)
            assert "could not work this out" not in told, where
            assert "high is" not in told, where  # of an axis, which the reader never gave
            assert "low is" not in told, where
            if "error" in reply:
                needs = config["n_positions"] if config["model_type"] == "gpt2" else None
                short = needs is not None and needs < 4 and f"has learnt {needs} position" in told
                assert short or told.startswith(("recipe is", "targets is")), where


def test_twice_the_sequence_is_drawn_for_a_model_of_few_positions():
    explorer = live.get("activations.sequence")
    for positions, half in ((4, 2), (16, 8), (128, 64), (129, 64), (255, 127)):
        config = json.dumps(GPT2 | {"n_positions": positions})
        reply = explorer.respond({"values": {"model": {"choice": "own", "config": config}}})
        assert f"1 × {half} tokens doubled to {positions}: " in reply["say"]
        assert f"gpt2 has learnt {positions} positions; no sequence is longer." in reply["slots"]["view"]


@pytest.mark.parametrize(("name", "control"), [("kv_cache.users", "context"), ("kv_cache.fetch", "tokens"),
                                               ("weights.decode", "context"), ("activations.saved", "sequence")])
def test_what_is_longer_than_learnt_positions_is_cut_and_said(name, control):
    explorer = live.get(name)
    cut, full = (explorer.view(**explorer.defaults | {"model": "gpt2", control: length}) for length in (131072, 1024))
    assert cut.say == full.say
    assert "gpt2 has learnt 1,024 positions; no sequence is longer." in cut.note
    assert "learnt" not in full.note
