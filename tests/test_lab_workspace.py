"""O's tensors in torch, to the byte: autocast's copies, gradients waiting to be added, AdamW's temporaries."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from memtier import evidence, models, recipes, workspace  # noqa: E402
from memtier.lab import cells  # noqa: E402
from memtier.lab import workspace as lab  # noqa: E402

FP32 = next(name for name in recipes.names() if recipes.get(name).gradients == 4)


pytestmark = pytest.mark.usefixtures("quiet_torch")


def _entries(config, **how):
    return {entry.name: entry for entry in workspace.entries(config, recipe=FP32, **how)}


@pytest.mark.parametrize("family", models.FAMILIES)
def test_autocast_copies_what_products_read(family):
    config = next(cells.usual(family, 1, seed=7)).config
    found = lab.autocast(config)
    assert found.made == found.alive == _entries(config, autocast=True)["autocast copies"].margin


@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral"])
def test_one_gradient_waits_to_be_added(family):
    config = next(cells.usual(family, 1, seed=7)).config
    found = lab.accumulate(config)
    assert found.waiting == _entries(config, micro_batches=2)["gradient accumulation"].margin
    assert found.gradients == 4 * models.from_config(config).parameters


@pytest.mark.parametrize("update", workspace.UPDATES)
@pytest.mark.parametrize("family", ["llama", "olmo2", "gpt2", "deepseek_v2"])
def test_adamws_temporaries(family, update):
    config = next(cells.usual(family, 1, seed=7)).config
    predicted = _entries(config, update=update)["temporaries of the update"].margin
    assert lab.update(config, implementation=update) == predicted


def test_the_allocators_sizes_are_those_of_torchs_header():
    header = (Path(torch.__file__).parent / "include/c10/core/AllocatorConfig.h").read_text(encoding="utf-8")
    names = {"small-segment": r"kSmallBuffer = (\d+)", "block": r"kMinBlockSize = (\d+)",
             "small": r"kSmallSize = (\d+)",
             "large": r"kMinLargeAlloc = (\d+)", "segment-multiple": r"kRoundLarge = (\d+)",
             "large-segment": r"large_segment_size_\{(\d+)\}"}
    for name, pattern in names.items():
        found = re.search(pattern, header)
        assert found, name
        assert int(found[1]) == evidence.get(f"software.allocator.{name}").quantity, name


def test_a_gpus_own_counters():
    if torch.cuda.is_available():
        before = lab.device()
        kept = torch.empty(1000, dtype=torch.uint8, device="cuda")
        after = lab.device()
        assert after["allocated"] - before["allocated"] == workspace.rounded(kept.numel()) == 1024
        assert after["allocated"] <= after["reserved"] <= after["device"]
    else:
        with pytest.raises(RuntimeError, match="no CUDA GPU"):
            lab.device()
