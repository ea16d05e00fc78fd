"""Compares memtier, and what others use, with torch: parameters, training state, KV cache and saved activations.

    python benchmarks/accuracy.py [--jobs N] [--again]

First torch measures (some 15 minutes of one core), then each package answers in an environment of its own (benchmarks/
packages.py), then the published formulas and memtier. The results go to benchmarks/accuracy.json, which the page
"How accurate is this?" reads, and its tables are printed. What torch said before is kept while its version and that of
transformers are the same; --again measures everything anew.
"""

import argparse
import json
import os
import platform
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import cases
import packages
import peers
import torch
import transformers
import truth

from memtier import accuracy, activations, kv_cache, models, optimizer_state

RESULTS = Path(__file__).with_name("accuracy.json")
MEASURED = packages.ENVIRONMENTS / "measured.json"  # what torch has said so far, should a run be interrupted
CACHES = 2  # of a full-size model: so many of the sizes it is run with
RECIPES = ("bf16-adam", "fp32-adam")


def plan() -> tuple[dict[str, dict], list[dict]]:
    """The small models' configs by name, and a row for each thing to compare, without numbers yet."""
    configs, rows, seen = {}, [], set()
    caches: dict[str, int] = {}

    def add(quantity, case, **how):
        key = (quantity, case.name, *how.items())
        if key not in seen:
            seen.add(key)
            rows.append({"quantity": quantity, "model": case.name, "how": how})

    for case in cases.all():
        if case.real:
            configs[case.name] = case.config
        add("parameters", case)
        for recipe in RECIPES[: 1 if case.real else 2]:
            add("training state", case, recipe=recipe)
        sizes = {name: case.how[name] for name in ("batch", "sequence", "dtype")}
        if case.real or caches.setdefault(case.name, 0) < CACHES:
            caches[case.name] = caches.get(case.name, 0) + 1
            add("KV cache", case, **sizes)
        add("activations", case, **case.how)
    return configs, rows


def measure(row: dict, config: dict, real: bool) -> int:
    """What torch says."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if row["quantity"] == "parameters":
        return truth.parameters(config)
    if row["quantity"] == "training state":
        return truth.state(config, **row["how"])
    if row["quantity"] == "KV cache":
        return truth.cache(config, real=real, **row["how"])
    return truth.saved(config, real=real, **row["how"])


def predict(row: dict, model: models.Model) -> int:
    """What memtier says; tests/test_accuracy.py asks it again."""
    how = row["how"]
    if row["quantity"] == "parameters":
        return model.parameters
    if row["quantity"] == "training state":
        return optimizer_state.inventory(model, **how).total
    if row["quantity"] == "KV cache":
        return kv_cache.inventory(model, **how).total
    kept = activations.live if how["recompute"] == "selective" else activations.saved
    return kept(model, **how).total


def formulas(row: dict, model: models.Model) -> dict[str, float]:
    """What the published formulas say; those without an answer are left out."""
    ask = {"parameters": peers.parameters, "training state": peers.state, "KV cache": peers.cache,
           "activations": peers.saved}[row["quantity"]]
    answers = {peer: ask(peer, model, **row["how"]) for peer in peers.SOURCES}
    return {peer: answer for peer, answer in answers.items() if answer is not None}


def model_of(row: dict, configs: dict) -> models.Model:
    """The row's model: a small one by its config, or one of the registry."""
    return models.from_config(configs[row["model"]]) if row["model"] in configs else models.get(row["model"])


def run(jobs: int, again: bool) -> accuracy.Results:
    """Everything, with what torch said before where that still holds."""
    configs, rows = plan()
    versions = {"Python": platform.python_version(), "torch": torch.__version__,
                "transformers": transformers.__version__}
    before = {} if again else _measured_before(versions)
    results = accuracy.Results(time.strftime("%Y-%m-%d"), _machine(), versions, {}, configs, [])
    MEASURED.parent.mkdir(parents=True, exist_ok=True)
    missing = [row for row in rows if _key(row, configs) not in before]
    with ProcessPoolExecutor(jobs) as pool:
        asked = {pool.submit(measure, row, model_of(row, configs).config, row["model"] in configs): row
                 for row in missing}
        for number, done in enumerate(as_completed(asked), 1):
            row = asked[done]
            before[_key(row, configs)] = done.result()
            print(f"{number:4} of {len(asked)}: {row['quantity']}, {row['model']}, {row['how']}", flush=True)
            if number % 25 == 0:
                accuracy.write(_filled(results, rows, before), MEASURED)
    results = _filled(results, rows, before)
    accuracy.write(results, MEASURED)

    for row in results.rows:
        model = model_of(row, configs)
        row["memtier"] = predict(row, model)
        row["peers"] = formulas(row, model)
    for package in packages.PACKAGES:
        version, answers = packages.ask(package, results)
        results.versions[package.name] = version
        for number, peer, answer in answers:
            results.rows[number]["peers"][peer] = answer
    results.sources.update(peers.SOURCES | packages.SOURCES)
    accuracy.write(results, RESULTS)
    return results


def _measured_before(versions: dict) -> dict[str, int]:
    """What torch said in an earlier run, finished or not, with the same versions."""
    before = {}
    for path in filter(Path.exists, (RESULTS, MEASURED)):
        old = accuracy.read(path)
        if all(old.versions.get(name) == versions[name] for name in ("torch", "transformers")):
            before |= {_key(row, old.configs): row["torch"] for row in old.rows}
    return before


def _filled(results, rows, before):
    rows = [row | {"torch": before[_key(row, results.configs)]} for row in rows if _key(row, results.configs) in before]
    return accuracy.Results(results.date, results.machine, results.versions, results.sources, results.configs, rows)


def _key(row: dict, configs: dict) -> str:
    return json.dumps([row["quantity"], configs.get(row["model"], row["model"]), row["how"]], sort_keys=True)


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} CPU cores, {memory:.0f} GiB of memory, no GPU used"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that measure at the same time")
    parser.add_argument("--again", action="store_true", help="measure what was measured before, too")
    asked = parser.parse_args()
    results = run(asked.jobs, asked.again)
    for quantity in accuracy.QUANTITIES:
        print(f"\n{results.table(quantity)}")


if __name__ == "__main__":
    main()
