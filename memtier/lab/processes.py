"""Ranks: processes of this machine that make up one torch process group, listened to and ended together.

    team = Team(forking("memtier.lab.training_run"), 2, work, folder)     # work(tell, rank, ranks, folder) in each
    team.wait(60)
    team.kill()
    team.told(0)                                                          # what rank 0 told, a dict a call

Seen on Linux with gloo, torch 2.13.0.
"""

import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

LAST_WORDS = 3000  # characters
LOOPBACK = {"linux": "lo", "darwin": "lo0"}


class Failed(RuntimeError):
    """A rank ended otherwise than it should. codes: rank → exit code of those that had ended by then."""

    def __init__(self, codes: dict[int, int], words: str):
        super().__init__(f"the processes ended with exit codes {codes}; their last words:\n{words}")
        self.codes = codes


def forking(*modules: str):
    """A context whose processes fork from one that has imported `modules`: an import costs seconds, a fork nothing.

    That one is made once, when the first of them starts: the modules named by then are those it imports.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return context


def use_loopback() -> None:
    """Let gloo talk inside this machine only: that works where the host's own name does not resolve."""
    if sys.platform in LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])


def join(rank: int, ranks: int, meeting: str | Path) -> None:
    """Become one of `ranks` processes of this machine. meeting: a file that does not exist yet, where they meet."""
    torch.set_num_threads(1)  # the ranks share a small machine's cores
    use_loopback()
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks,
                            timeout=timedelta(minutes=5))


class Team:
    """`ranks` processes that have joined each other and then call work(tell, rank, ranks, *arguments).

    What a rank tells, tell(step=3, loss=0.5), can be read at once and also when it was killed. What it prints is kept
    for the case that it fails.
    """

    def __init__(self, context, ranks: int, work: Callable, *arguments):
        self._desk = tempfile.TemporaryDirectory(prefix="memtier-ranks-")  # where ranks meet and write
        self._told: list[list[dict]] | None = None  # by rank, once they have ended
        self._processes = [context.Process(target=_begin, daemon=True, args=(Path(self._desk.name), work, rank, ranks,
                                                                            *arguments)) for rank in range(ranks)]
        for each in self._processes:
            each.start()

    def told(self, rank: int) -> list[dict]:
        """What this rank has told so far. A last line that is torn, as a kill leaves it, does not count."""
        if self._told is not None:
            return self._told[rank]
        return [json.loads(line) for line in self._read(f"rank-{rank}.jsonl").splitlines(True) if line.endswith("\n")]

    def _read(self, name: str) -> str:
        file = Path(self._desk.name, name)
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    @property
    def codes(self) -> dict[int, int]:
        """Rank → exit code of those that have ended."""
        return {rank: each.exitcode for rank, each in enumerate(self._processes) if each.exitcode is not None}

    @property
    def was_killed(self) -> bool:
        return -signal.SIGKILL in self.codes.values()

    @property
    def over(self) -> bool:
        """Whether all have ended, or one otherwise than it should."""
        return len(self.codes) == len(self._processes) or any(self.codes.values())

    def wait(self, seconds: float | None = None) -> None:
        """Wait until all have ended by themselves; none is stopped here. seconds: at most so long, None for ever.

        Raises Failed as soon as one has failed or was killed, TimeoutError after `seconds`.
        """
        began, left = time.monotonic(), [each.sentinel for each in self._processes]
        while left:
            patience = None if seconds is None else max(0, began + seconds - time.monotonic())
            if not (ended := multiprocessing.connection.wait(left, patience)):
                late = [rank for rank in range(len(self._processes)) if rank not in self.codes]
                raise TimeoutError(f"ranks {late} had not ended after {seconds} seconds")
            left = [each for each in left if each not in ended]
            if any(self.codes.values()):
                raise Failed(self.codes, self._words())

    def _words(self) -> str:
        """The last that each failed rank printed."""
        failed = [rank for rank, code in self.codes.items() if code]
        return "\n".join(f"rank {rank}: {self._read(f'rank-{rank}.txt')[-LAST_WORDS:]}" for rank in failed)

    def kill(self) -> None:
        """End all processes at once, as kill -9 or a power cut does: nothing is written, nobody is told."""
        for each in self._processes:
            each.kill()
        for each in self._processes:
            each.join()
        self._told = [self.told(rank) for rank in range(len(self._processes))]
        self._desk.cleanup()


def _begin(desk: Path, work: Callable, rank: int, ranks: int, *arguments) -> None:
    """One rank's life."""
    words = open(desk / f"rank-{rank}.txt", "w", buffering=1, encoding="utf-8")  # noqa: SIM115 (ends with the process)
    os.dup2(words.fileno(), 1)  # torch's own words too
    os.dup2(words.fileno(), 2)
    sys.stdout = sys.stderr = words
    join(rank, ranks, desk / "meeting")
    with open(desk / f"rank-{rank}.jsonl", "a", buffering=1, encoding="utf-8") as lines:
        work(lambda **line: lines.write(json.dumps(line) + "\n"), rank, ranks, *arguments)
    dist.destroy_process_group()
