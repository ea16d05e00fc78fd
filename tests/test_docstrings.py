"""The examples in every module's docstrings are true."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import memtier

OTHERS = ("memtier.lab", "memtier.live.jupyter", "memtier.__main__")  # need torch or ipywidgets; a program
MODULES = sorted(module.name for module in pkgutil.walk_packages(memtier.__path__, "memtier.", onerror=lambda _: None)
                 if not module.name.startswith(OTHERS))
HAVE_SOME = {f"memtier.{name}" for name in (
    "accuracy", "checkpoints", "flash_attention", "inventory", "kv_cache", "live", "optimizer_state", "recovery",
    "tiers", "training_data", "weights")}


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    failed, attempted = doctest.testmod(import_module(name))
    assert failed == 0
    assert attempted > 0 or name not in HAVE_SOME


def test_every_module_with_examples_is_found():
    assert set(MODULES) >= HAVE_SOME
