"""All six kinds in one small run of torch, each counted where it lies: in memory by storage, on disk by file size.

Seen with torch 2.13.0 and transformers 5.24.0 on a CPU, fp32, SDPA, eager mode.
"""

import tempfile
from array import array
from pathlib import Path

import torch

from memtier import checks
from memtier.inventory import Inventory

CONFIG = {"model_type": "llama", "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 688,
          "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}


def one_small_run(*, batch: int = 2, sequence: int = 64, seed: int = 0) -> Inventory:
    """Write a corpus, train CONFIG's Llama on it for one fp32 AdamW step, save a checkpoint, read one prompt.

    batch sequences of `sequence` tokens are the corpus, stored in 2 bytes a token, and the prompt.
    Raises ValueError for counts below 1.
    """
    checks.whole("batch", batch)
    checks.whole("sequence", sequence)
    from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache  # seconds to import

    settings = dict(CONFIG)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
    optimizer = torch.optim.AdamW(model.parameters())
    with tempfile.TemporaryDirectory(prefix="memtier-kinds-") as folder:
        corpus, checkpoint = Path(folder, "corpus.bin"), Path(folder, "checkpoint.pt")
        tokens = torch.randint(model.config.vocab_size, (batch, sequence))
        corpus.write_bytes(array("H", tokens.flatten().tolist()).tobytes())
        ids = torch.tensor(array("H", corpus.read_bytes())).reshape(batch, sequence)
        activations = _train(model, optimizer, ids)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
        on_disk = {"training data": corpus.stat().st_size, "checkpoint": checkpoint.stat().st_size}
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=ids, cache=cache)
    states = [each for state in optimizer.state.values() for each in state.values()]
    return Inventory({
        "training data": on_disk["training data"],
        "weights": _stored(model.parameters()),
        "activations": activations,
        "optimizer": _stored(states),
        "checkpoint": on_disk["checkpoint"],
        "KV cache": _stored([each for layer in cache.layers for each in (layer.keys, layer.values)]),
    }, "torch, one small run, measured")


def _train(model, optimizer, ids) -> int:
    """One step; the bytes that autograd kept for the backward pass, weights and buffers not counted again."""
    mine = {each.untyped_storage()._cdata for each in (*model.parameters(), *model.buffers())}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in mine:
            kept[storage._cdata] = storage  # held, so that no later storage takes its place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    nbytes = sum(storage.nbytes() for storage in kept.values())
    loss.backward()
    optimizer.step()
    return nbytes


def _stored(tensors) -> int:
    """Bytes of the storages behind the tensors, each storage once."""
    storages = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in tensors}
    return sum(storages.values())
