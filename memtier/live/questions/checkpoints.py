"""Questions on checkpoints. Every answer, right or wrong, is computed by the functions the chapter explains."""

from memtier import checkpoints, evidence, optimizer_state, tiers
from memtier.checkpoints import DAY, Stage
from memtier.layout import Layout
from memtier.live.course import BILLION
from memtier.live.question import Misconception, Question
from memtier.units import format_bytes, format_count, format_rate, format_time

RECIPE = "bf16-adam"


def _saved(v, contents="resumable") -> float:
    return checkpoints.inventory(v["parameters"], recipe=RECIPE, contents=contents).total


def _draw_size(random) -> dict:
    v = {"parameters": random.choice((2, 3, 9, 13, 20, 27, 34, 65, 90, 110, 236, 314)) * BILLION}
    return v | {"size": format_count(v["parameters"]), "total": format_bytes(_saved(v)),
                "weights": format_bytes(_saved(v, "weights"))}


size = Question(
    name="checkpoints.size",
    title="What has to be saved",
    draw=_draw_size,
    prompt="A model of {size} parameters is trained with mixed-precision Adam: weights and gradients in bf16, fp32 "
           "master "
           "weights and two fp32 moments. **How large is a checkpoint** with bf16 weights in it, from which training "
           "goes "
           "on as if nothing had happened?",
    unit="bytes",
    answer=_saved,
    misconceptions=(
        Misconception(lambda v: optimizer_state.inventory(v["parameters"], recipe=RECIPE).total,
                      "You have 16 bytes a parameter. Gradients are made anew in the next step: nothing needs the "
                      "old."),
        Misconception(lambda v: _saved(v, "weights"),
                      "Those are the weights. From them you can serve; training would start with empty moments."),
        Misconception(lambda v: _saved(v, "without copy"),
                      "12 bytes: right where the bf16 weights are left out and made again. Here they are in it."),
    ),
    hints=(
        "Which of the five numbers kept for a parameter does the next step need, and which does it make itself?",
        "Sixteen bytes, less what the backward pass writes anew.",
    ),
    solution="Weights 2, master weights 4, moments 4 + 4: 14 bytes a parameter, no gradients. {size} × 14 bytes = "
             "**{total}**, seven times the {weights} of its weights.",
)


def _draw_rank(random) -> dict:
    v = {"parameters": random.choice((13, 34, 70, 110, 175, 405)) * BILLION, "gpus": random.choice((32, 64, 128, 512))}
    return v | {"size": format_count(v["parameters"]), "whole": format_bytes(_saved(v)),
                "each": format_bytes(_each(v))}


def _each(v) -> float:
    return checkpoints.per_rank(v["parameters"], recipe=RECIPE, layout=Layout(shard=v["gpus"])).total


each_rank = Question(
    name="checkpoints.each_rank",
    title="Who writes what",
    draw=_draw_rank,
    prompt="{size} parameters, mixed-precision Adam, {gpus} data-parallel ranks. The checkpoint is sharded: its 14 "
           "bytes a "
           "parameter are spread evenly over the ranks. **How much does each rank write?**",
    unit="bytes",
    answer=_each,
    misconceptions=(
        Misconception(_saved, "That is the whole checkpoint. If each rank wrote it, there would be one for every "
                              "rank."),
        Misconception(lambda v: _saved(v) * v["gpus"],
                      "You let every rank write everything. It is one checkpoint, written once, by all together."),
        Misconception(lambda v: _saved(v, "weights") / v["gpus"], "Those are the weights alone."),
    ),
    hints=("How large is the whole checkpoint?", "{whole}, divided among {gpus}."),
    solution="One checkpoint is {whole}, however many ranks there are. {gpus} ranks write **{each}** each.",
)


def _draw_shared(random) -> dict:
    v = {"parameters": random.choice((34, 70, 110, 175, 405)) * BILLION, "nodes": random.choice((8, 16, 32, 64)),
         "rate": random.choice((20, 40, 100, 250)) * 10**9}
    return v | {"whole": format_bytes(_saved(v)), "speed": format_rate(v["rate"]), "time": format_time(_shared(v))}


def _shared(v, writers=1) -> float:
    return checkpoints.write_time(_saved(v), to=v["rate"], writers=writers)


shared = Question(
    name="checkpoints.shared",
    title="A file system for everyone",
    draw=_draw_shared,
    prompt="{nodes} nodes write a checkpoint of {whole} together to a parallel file system that takes {speed} **in "
           "all**. "
           "**How long does it take?**",
    unit="s",
    answer=_shared,
    misconceptions=(
        Misconception(lambda v: _shared(v, writers=v["nodes"]),
                      "You multiplied the rate by the nodes. A node-local drive multiplies so; a shared tier is "
                      "shared."),
        Misconception(lambda v: _shared(v) * v["nodes"],
                      "You let every node write the whole. They write one checkpoint together."),
    ),
    hints=("Is the rate that of one node, or of all together?", "Bytes divided by the rate. Nothing else enters."),
    solution="{whole} ÷ {speed} = **{time}**. More nodes do not help: the file system is the limit, and it is one.",
)


def _draw_queue(random) -> dict:
    v = {"interval": random.choice((20, 30, 40)), "seconds": random.choice((90, 120, 150, 180)), "hours": 2}
    return v | {"every": format_time(v["interval"]), "each": format_time(v["seconds"]), "made": _made(v),
                "done": _done(v), "waiting": f"{_waiting(v):,}"}


def _made(v) -> int:
    return int(3600 * v["hours"] // v["interval"])


def _done(v) -> int:
    return int(3600 * v["hours"] // v["seconds"])


def _waiting(v) -> int:
    return checkpoints.backlog(interval=v["interval"], seconds=v["seconds"], duration=3600 * v["hours"])


queue = Question(
    name="checkpoints.queue",
    title="What piles up",
    draw=_draw_queue,
    prompt="A job saves every {every} to its nodes' drives, which takes a second, in the background: the job does not "
           "wait. From there each version goes to shared storage, one after the other, {each} each. No version is "
           "passed over. After {hours} hours, **how many versions have not arrived?**",
    unit="count",
    tolerance=0.02,
    answer=_waiting,
    misconceptions=(
        Misconception(lambda v: _made(v), "You counted all that were made. Some have been written."),
        Misconception(lambda v: _done(v), "That is how many have arrived."),
        Misconception(lambda v: 1, "That would hold if shared storage kept pace. Compare the two times."),
    ),
    hints=("How many versions are made in that time, and how many can shared storage finish?",
           "Made: {made}. Now count the finished ones."),
    solution="Made: {made}. Finished: {done}. Not arrived: **{waiting}**, and every hour adds more. Save to the slow "
             "tier "
             "less often than it takes to write, or let it pass over the older versions.",
)


def _draw_drives(random) -> dict:
    v = {"parameters": random.choice((70, 110, 175)) * BILLION, "nodes": random.choice((2, 4, 8)), "drives": 4,
         "interval": random.choice((30, 60, 120)), "endurance": evidence.get(
             "nvme.micron-9550.endurance-3200gb").quantity}
    return v | {"whole": format_bytes(_saved(v)), "every": format_time(v["interval"]),
                "rated": format_bytes(v["endurance"]), "a_day": format_bytes(_a_day(v)),
                "days": f"{_days(v):,.0f}", "life": format_time(_life(v))}


def _a_day(v) -> float:
    return checkpoints.written_each_day(_saved(v), interval=v["interval"]) / (v["nodes"] * v["drives"])


def _life(v, drives=None) -> float:
    return checkpoints.drive_life(_saved(v), interval=v["interval"], endurance=v["endurance"],
                                  drives=drives or v["nodes"] * v["drives"])


def _days(v) -> float:
    return _life(v) / DAY


endurance = Question(
    name="checkpoints.endurance",
    title="What the drives bear",
    draw=_draw_drives,
    prompt="{nodes} nodes with {drives} drives each share the writing of {whole} every {every}, day and night. One "
           "drive is "
           "rated for {rated} over its life. **How long until they have used that up?** (Write it with a unit, such "
           "as 90 "
           "days.)",
    unit="s",
    answer=_life,
    misconceptions=(
        Misconception(lambda v: _life(v, drives=1), "You let one drive bear it all."),
        Misconception(lambda v: _life(v, drives=v["nodes"]), "You counted one drive a node."),
        Misconception(lambda v: v["endurance"] / _saved(v) * v["interval"] * v["nodes"] * v["drives"] / 24,
                      "A day has 24 hours: look at your units again."),
    ),
    hints=("How many bytes does one drive write in a day?", "{a_day} a day on each drive, of {rated}."),
    solution="Each drive writes {a_day} a day; {rated} last **{life}**. A drive that is full can be emptied; one "
             "that is "
             "worn out cannot.",
)

WHY_LOCAL = {
    "rate": "each node brings its own write rate, so the job waits least",
    "durable": "a copy there is safer than one on shared storage",
    "cheap": "local drives cost less a byte than shared storage",
    "shared": "every node can read every other node's drives",
}

local_first = Question(
    name="checkpoints.local_first",
    title="Why the node's own drive first",
    draw=lambda random: (lambda nodes: {
        "nodes": nodes, "all": format_rate(nodes * tiers.get("micron-9550").write),
        "one": format_rate(tiers.get("micron-9550").write)})(random.choice((16, 32, 64, 128, 256, 512, 1024))),
    prompt="A job on {nodes} nodes saves first to one NVMe drive in each node, {one} each, and only then to a "
           "parallel file "
           "system. **Why in that order?**",
    kind="choice",
    options=WHY_LOCAL,
    answer=lambda v: "rate",
    misconceptions=(
        Misconception(lambda v: "durable", "The other way round: a drive goes down with its node. That is why the "
                                           "drain "
                                           "to shared storage follows."),
        Misconception(lambda v: "cheap", "Perhaps, but the order is about time, not money."),
        Misconception(lambda v: "shared", "They cannot. A node that is gone takes its drive along."),
    ),
    hints=("What does the job wait for?", "Rates of drives in different nodes add up; a shared tier's rate is one."),
    solution="Because each node brings its own write rate, so the job waits least: {nodes} × {one} = {all}, and it "
             "grows "
             "with the job. The safer copy follows while the job computes.",
)


CAUSES = {
    "buffer": "the last version is still being written, so no copy in CPU memory is free",
    "snapshot": "copying into CPU memory takes so long",
    "full": "the local drive is full",
    "manifest": "writing the manifest takes so long",
}


def _draw_diagnose(random) -> dict:
    v = {"interval": random.choice((30, 40, 50, 60)), "seconds": random.choice((75, 90, 120)), "snapshot": 1}
    return v | {"every": format_time(v["interval"]), "writes": format_time(v["seconds"]),
                "copies": format_time(v["snapshot"]), "waits": format_time(_stall(v))}


def _stall(v) -> float:
    """What the third save waits, with room for one copy."""
    run = checkpoints.drain(interval=v["interval"], stages=[Stage("shared storage", v["seconds"])],
                            snapshot=v["snapshot"], duration=20 * v["seconds"])
    return run.stalls[2]


diagnose = Question(
    name="checkpoints.diagnose",
    title="It was to be asynchronous",
    draw=_draw_diagnose,
    prompt="Saves go to CPU memory ({copies}) and from there in the background to shared storage ({writes} each). "
           "There is "
           "room for one copy. The job saves after every {every} of work. The first save stops it for {copies}, all "
           "later "
           "ones for **{waits}**. **Why?**",
    kind="choice",
    options=CAUSES,
    answer=lambda v: "buffer",
    misconceptions=(
        Misconception(lambda v: "snapshot", "That takes {copies}, for the first save as for the others."),
        Misconception(lambda v: "full", "Then saves would fail, not wait."),
        Misconception(lambda v: "manifest", "It is a few kilobytes."),
    ),
    hints=("What is different between the first save and the second?", "{writes} of writing, and a save every "
                                                                       "{every}."),
    solution="Because the last version is still being written, so no copy in CPU memory is free: {writes} of writing "
             "do not "
             "fit into {every} of work. Asynchronous saving hides a write that is shorter than the interval. A "
             "longer one "
             "only waits elsewhere. Save less often, or write faster.",
)
