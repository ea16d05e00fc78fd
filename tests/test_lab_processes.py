"""Ranks that meet, tell, fail, are late and are killed."""

import signal
import time

import pytest
import torch
import torch.distributed as dist
from checkpoint_kills import forking

from memtier.lab import processes


@pytest.fixture
def start():
    """start(ranks, work, *arguments) → Team; whatever is left of it is killed after the test."""
    teams = []

    def begin(*how):
        teams.append(processes.Team(forking(), *how))
        return teams[-1]

    yield begin
    for team in teams:
        team.kill()


def adds(tell, rank, ranks, number):
    total = torch.tensor(number + rank)
    dist.all_reduce(total)
    tell(rank=rank, of=ranks, total=total.item())


def test_ranks_meet_and_tell(start):
    team = start(3, adds, 10)
    team.wait(60)
    expected = [[{"rank": rank, "of": 3, "total": 10 + 11 + 12}] for rank in range(3)]
    assert [team.told(rank) for rank in range(3)] == expected
    team.kill()
    assert [team.told(rank) for rank in range(3)] == expected  # also when their folder is gone
    assert team.codes == dict.fromkeys(range(3), 0)
    assert team.over
    assert not team.was_killed


def fails(tell, rank, ranks, bad):
    tell(begun=True)
    if rank == bad:
        print("on my way")
        raise RuntimeError("no such luck")
    time.sleep(600)


def test_one_that_fails_is_heard_at_once_and_the_others_are_not_waited_for(start):
    team = start(2, fails, 1)
    with pytest.raises(processes.Failed, match=r"(?s)exit codes \{1: 1\}.*rank 1: on my way\n.*no such luck") as failed:
        team.wait(60)
    assert failed.value.codes == {1: 1}
    assert team.over
    team.kill()
    assert team.codes == {0: -signal.SIGKILL, 1: 1}
    assert team.told(1) == [{"begun": True}]


def test_those_who_are_late_are_named_and_live_on_until_they_are_killed(start):
    team = start(2, fails, None)
    with pytest.raises(TimeoutError, match=r"ranks \[0, 1\] had not ended after 0.01 seconds"):
        team.wait(0.01)
    while not all(team.told(rank) for rank in range(2)):
        time.sleep(0.01)
    assert (team.codes, team.over) == ({}, False)
    team.kill()
    assert team.codes == dict.fromkeys(range(2), -signal.SIGKILL)
    assert team.was_killed


def torn(tell, rank, ranks):
    tell(step=1)
    with open(tell.__closure__[0].cell_contents.name, "a") as lines:
        lines.write('{"step": {"number": 2}')


def test_a_torn_line_is_left_out(start):
    team = start(1, torn)
    team.wait(60)
    assert team.told(0) == [{"step": 1}]
