"""Numbers quoted in book/06-checkpoints.ipynb."""

from prose.common import drive, fact, size, state

from memtier import checkpoints, live, units
from memtier.layout import Layout

NOTEBOOK = "book/06-checkpoints.ipynb"


def saved(model=70e9, **other):
    return checkpoints.inventory(model, recipe="bf16-adam", **other).total


def each(model=70e9, ranks=64):
    return checkpoints.per_rank(model, recipe="bf16-adam", layout=Layout(shard=ranks)).total


def drained():
    """The explorer's preset of the story: every 30 s for an hour above shared storage of 20 GB/s."""
    explorer = live.get("checkpoints.drain")
    return explorer.view(**explorer.defaults | explorer.presets["every 30 s"]).say


def passed_over():
    """What the explorer notes of its preset that passes over older versions."""
    explorer = live.get("checkpoints.drain")
    return explorer.view(**explorer.defaults | explorer.presets["every 30 s, older ones passed over"]).note


def written(nbytes, rate, writers=1):
    return checkpoints.write_time(nbytes, to=rate, writers=writers)


def queued():
    """The second example: 5 TB every ten minutes for ten hours, 1,000 s each."""
    return checkpoints.backlog(interval=600, seconds=1000, duration=36_000)


QUOTED = {
    # the story
    "waits for a thousandth of its time": lambda:
        "waits for a thousandth of its time" if "waited 0.1 % of its time" in drained() else "",
    "49 seconds each": lambda: f"{written(saved(), 20e9):.0f} seconds each",
    "is 24 minutes old": lambda: f"is {drained().split('Lose every node now, and ')[1].split(' min')[0]} minutes old",
    "the job waits 0.1 % of its time":
        lambda: f"the job waits {drained().split('waited ')[1].split(' of')[0]} of its time",
    "47 versions, 46.1 TB, have not": lambda: "{} versions, {}, have not".format(
        *drained().split("; ")[1].split(", are")[0].replace(" newer ones", "").split(", ")),
    # what goes in
    "a round billion parameters: 14 GB": lambda: f"a round billion parameters: {size(saved(1e9))}",
    "= 0.98\\ \\text{TB}": lambda: f"= {saved() / units.TB:g}\\ \\text{{TB}}",
    "parameters at 14 bytes are 14 TB": lambda: f"parameters at 14 bytes are {size(saved(1e12))}",
    "it is 912 GiB, which are 980 GB": lambda: f"it is {int(saved() / units.GiB)} GiB, which are {size(saved())}",
    '"912 GB" for 70B': lambda: f'"{int(saved() / units.GiB)} GB" for 70B',  # as the source prints it
    "= 28 GB": lambda: f"= {size(saved(2e9))}",
    # who writes
    "0.98 TB become 15.3 GB each": lambda: f"{saved() / units.TB:g} TB become {size(each())} each",
    "5.67 TB, whatever the number": lambda: f"{size(saved(405e9))}, whatever the number",
    "Each writes 5.54 GB": lambda: f"Each writes {size(each(405e9, 1024))}",
    # how long
    "30 GB/s each write 1.92 TB/s together": lambda: f"30 GB/s each write {units.format_rate(64 * 30e9)} together",
    "one in 49 s": lambda: f"one in {written(saved(), 20e9):.0f} s",
    "blocked the job for 148.8 s": lambda: f"blocked the job for {fact('run.pytorch-async-7b.blocked-before')} s",
    "asynchronously for 6.3 s": lambda: f"asynchronously for {fact('run.pytorch-async-7b.blocked-after')} s",
    "its 15.3 GB take 5.1 s": lambda: f"its {size(saved() / 64)} take {written(saved() / 64, 3e9):.1f} s",
    # the second example
    "5,000 GB / 5 GB/s = 1,000 s": lambda: f"5,000 GB / 5 GB/s = {written(5e12, 5e9):,.0f} s",
    "36 finished, 24 in the queue: 120 TB": lambda: f"36 finished, {queued()} in the queue: {size(queued() * 5e12)}",
    # the third
    "= 280 GB": lambda: f"= {size(saved(20e9))}",
    "= 20 GB/s together, so 14 s": lambda: f"= 20 GB/s together, so {written(saved(20e9), 4e9, 5):.0f} s",
    "= 140 s. So at most every 140 s": lambda:
        "= {0:.0f} s. So at most every {0:.0f} s".format(written(saved(20e9), 2e9)),
    "= 56 GB of each version": lambda: f"= {size(saved(20e9) / 5)} of each version",
    "versions a day: 34.6 TB a day": lambda:
        f"versions a day: {size(checkpoints.written_each_day(saved(20e9) / 5, interval=140))} a day",
    # beliefs
    "after an hour 47 versions were on their way": lambda:
        f"after an hour {checkpoints.backlog(interval=30, seconds=49, duration=3600)} versions were on their way",
    "a copy 24 minutes old after an hour": lambda: "a copy {} minutes old after an hour".format(
        drained().split("Lose every node now, and ")[1].split(" min")[0]),
    "on 64 ranks, 62.7 TB": lambda: f"on 64 ranks, {size(64 * saved())}",
    "0.98 TB, 15.3 GB a rank": lambda: f"{saved() / units.TB:g} TB, {size(each())} a rank",
    "140 GB for 70B": lambda: f"{size(saved(contents='weights'))} for 70B",
    "would make 1.28 TB/s and 0.77 s": lambda:
        f"would make {units.format_rate(64 * 20e9)} and {written(saved(), 20e9, 64):.2f} s",
    "and takes 49 s": lambda: f"and takes {written(saved(), 20e9):.0f} s",
    "20 Gb/s are 2.5 GB/s": lambda: f"20 Gb/s are {units.format_rate(fact('run.mt-nlg-530b.rate'))}",
    "42 minutes for one": lambda: f"{written(530e9 * 12, fact('run.mt-nlg-530b.rate')) / 60:.0f} minutes for one",
    "Serving needs 2 bytes a parameter, going on needs 12, or 14 with": lambda:
        "Serving needs {:g} bytes a parameter, going on needs {:g}, or {:g} with".format(
            *(saved(1, contents=each) for each in ("weights", "without copy", "resumable"))),
    "12 bytes a parameter are enough to go on, and 14 with": lambda:
        f"{saved(1, contents='without copy')} bytes a parameter are enough to go on, and {saved(1)} with",
    "**12 bytes a parameter, or 14 with": lambda:
        f"**{saved(1, contents='without copy')} bytes a parameter, or {saved(1)} with",
    "between 1 MB and 4 GB": lambda: f"between 1 MB and {size(fact('run.llama3-405b.checkpoint-largest'))}",
    "the 45 versions that it passed over": lambda:
        f"the {passed_over().split('passed over ')[1].split(' older')[0]} versions that it passed over",
    "(Three drives of this kind, 10 GB/s each, would just write 30 GB/s": lambda:
        "({} drives of this kind, {} each, would just write 30 GB/s".format(
            {3: "Three"}[30e9 / drive().write], units.format_rate(drive().write)),
    "1.12 TB. Gradients": lambda: f"{size(state().total)}. Gradients",
    # counts and other units
    "those are 1.38 trillion parameters": lambda:
        f"those are {2571 * units.GiB / 2 / 1e12:.2f} trillion parameters",  # MLPerf Storage's row "1T": 2,571 GiB
    "of 1,000 s, under 17 minutes": lambda: f"of 1,000 s, under {-(-1000 // 60)} minutes",
    "two moments are 12 bytes a parameter": lambda: f"two moments are {3 * 4} bytes a parameter",
    "Adam keeps 16 bytes a parameter": lambda: f"Adam keeps {state(1).total} bytes a parameter",
    "Saves: 600 minutes": lambda: f"Saves: {10 * 60} minutes",
    "530 billion parameters at 12 bytes": lambda: "530 billion parameters at {:.0f} bytes".format(
        fact("run.mt-nlg-530b.write") * 2.5e9 / 530e9),  # over the link of 20 Gb/s that is named there
}

GIVEN = (
    "writes 7 GB/s", "= 4 s", "64 nodes with 30 GB/s", "of 5 TB is saved", "take it in 5 s", "writes 5 GB/s",
    "20 and 500 GB/s of shared storage",  # the course's round numbers
    "in 36,000 s", "writes 3 GB/s instead of 30", "a made-up 2 GB/s", "one drive of 4 GB/s each",
    "writes 2 GB/s in all", 'at "20 GB/s"', "every 30 s", "storage of 20 GB/s", "of 1,000 s",
    # reported; tests/test_checkpoints.py reconstructs them
    "10.4 GB a GPU", "650 MB with sixteen", "13.8 GB and 870 MB",
    # what the examples and questions start from, and how long the chapter takes
    "after 10 hours", "every 10 minutes to drives", "of 2 billion parameters", "of 20 billion parameters",
    "every 30 seconds", "weights** (4 bytes)", "of 405 billion parameters", "on 5 nodes", "on 64 GPUs in eight nodes",
    "For 70 billion: 14", "of 70 billion parameters", "never two minutes old",
    "Read: 25 minutes. Do: 35 minutes", "with torch: 2 minutes",
)
