"""How long a training loop stands still for a checkpoint: synchronous and asynchronous, the same bytes, in pairs.

    python benchmarks/checkpoints.py [--pairs N] [--folder FOLDER]

Synchronous: until the files and the manifest are on the disk. Asynchronous: until the state is copied to CPU memory;
the loop then trains while a thread writes. Each pair takes both, in turns which comes first. The results, as ratios,
go to benchmarks/checkpoints.json. Times of one machine say little of another's; the ratio is what the book uses.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from memtier import units
from memtier.lab import processes
from memtier.lab.checkpoint_store import Store
from memtier.lab.checkpoints import Checkpointer
from memtier.lab.training_run import Settings, Training

RESULTS = Path(__file__).with_name("checkpoints.json")
SETTINGS = Settings(width=2048, depth=4)  # 17 million parameters: 200 MB of weights and moments


def blocked(checkpointer: Checkpointer, training: Training, wait: bool) -> float:
    """Seconds the loop stands still for one checkpoint; all that follows it has ended when this returns."""
    before = checkpointer.blocked
    checkpointer.save(training.step, training, wait=wait)
    seconds = checkpointer.blocked - before
    while not checkpointer.idle:
        training.train_step()
    return seconds


def measure(folder: Path, pairs: int) -> dict:
    """Both ways, `pairs` times, after one of each that is not counted: the first snapshot allocates its memory."""
    processes.join(0, 1, str(folder / "meeting"))
    training = Training(SETTINGS)
    checkpointer = Checkpointer([Store("local", str(folder / "local"), 1e9, keep=1)], say=lambda line: None)
    found = []
    for pair in range(-1, pairs):
        order = (True, False) if pair % 2 else (False, True)
        times = {}
        for wait in order:
            training.train_step()
            times[wait] = blocked(checkpointer, training, wait)
        if pair >= 0:
            found.append((times[False], times[True]))
            print(f"pair {pair + 1}: {times[False]:.3f} s of {times[True]:.3f} s", flush=True)
    newest = Path(checkpointer.local.path(checkpointer.local.complete()[0]))
    nbytes = sum(each.stat().st_size for each in newest.iterdir())
    checkpointer.close()
    dist.destroy_process_group()
    ratios = sorted(short / long for short, long in found)
    return {"bytes": nbytes, "pairs": pairs, "ratio": {"lowest": round(ratios[0], 3), "median": round(
        statistics.median(ratios), 3), "highest": round(ratios[-1], 3)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; the system's temporary one otherwise")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memtier-benchmark-", dir=given.folder) as folder:
        result = measure(Path(folder), given.pairs)
    machine = f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores"
    result = {"what": "seconds the loop stands still, asynchronous over synchronous, one process",
              "date": datetime.date.today().isoformat(), "machine": machine, "torch": torch.__version__} | result
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{units.format_bytes(result['bytes'])} a version; asynchronous over synchronous: {result['ratio']}")


if __name__ == "__main__":
    main()
