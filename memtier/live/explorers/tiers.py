"""Explorers of the tiers: the ladder, and what small reads cost."""

from memtier import drawing, evidence, own_ladder, tiers, units
from memtier.drawing import BYTE_TICKS, RATE_TICKS, TIME_TICKS, Axis
from memtier.live.controls import Choice, FileChoice, Slider
from memtier.live.explorer import Explorer, Prediction, View
from memtier.live.text import number

LINK = "pcie5-x16"  # the way that stands between the accelerator's tiers and the machine's
SCALING = "s3-connection"  # the tier that many connections make faster
# Where no source gives a latency, the nearest thing that has one, and what it is: counted as nothing, the wait would
# put a file system before SRAM whenever little is read.
BORROWED = {"pcie5-x16": ("cxl.memory.latency", "that of memory behind a PCIe connector"),
            "tectonic": ("pfs.open-call.latency", "that of opening a file on Lustre")}
# Which rung of the reader's own file stands beside which row.
OWN = {"h100-hbm": ("HBM", "copy"), LINK: ("PCIe", None), "grace-lpddr5x": ("CPU DRAM", "copy"),
       "micron-9550": ("NVMe", "sequential read")}
# Wide enough for 4 KB from SRAM and 10 TB over one slow connection, and still: only the dots move.
TIMES = Axis("time", 1e-8, 1e6, units.format_time, TIME_TICKS)
SIZES = Axis("capacity", 1e6, 1e18, units.format_bytes, BYTE_TICKS)


def _rows():
    """The ladder's tiers with the link in its place, below HBM and what stacks beside it."""
    ladder = list(tiers.ladder())
    below = next(n for n, tier in enumerate(ladder) if tier.rung == "CPU DRAM")
    return [*ladder[:below], tiers.link(LINK), *ladder[below:]]


def _seconds(row, nbytes: float, streams: int) -> float:
    rate = row.rate if isinstance(row, tiers.Link) else row.read
    wait = evidence.get(BORROWED[row.name][0]).quantity if row.latency is None else row.latency
    return tiers.transfer_time(nbytes, rate, wait, streams if row.name == SCALING else 1)


def _label(row, streams: int) -> str:
    if row.name == SCALING:
        return f"S3, {streams:,} connection{'s' if streams > 1 else ''}"
    return row.title if row.status == "shipping" else f"{row.title} (announced)"


def _ladder(nbytes, streams, own, guess=None) -> View:
    rows = _rows()
    seconds = {row.name: _seconds(row, nbytes, streams) for row in rows}
    yours = {}
    if own is not None:
        for name, (rung, what) in OWN.items():
            found = own.best(rung, what)
            if found is not None and found.bandwidth:
                yours[name] = tiers.transfer_time(nbytes, found.bandwidth, found.latency or 0)
    size = units.format_bytes(nbytes)
    say, time = [], units.format_time
    for name, words in (("h100-hbm", "from HBM"), (LINK, "over PCIe 5 x16"), ("micron-9550", "from one NVMe drive"),
                        (SCALING, f"from object storage over {streams:,} connection{'s' if streams > 1 else ''}")):
        say.append(f"{time(seconds[name])} {words}")
    sentence = f"Reading {size} once takes {', '.join(say[:-1])} and {say[-1]}."
    if seconds[SCALING] < seconds[LINK]:
        sentence += " The slowest tier now beats the PCIe link."
    drawn = [(_label(row, streams), {"datasheet": seconds[row.name]}
              | ({"your machine": yours.get(row.name)} if yours else {})) for row in rows]
    times = drawing.dots(drawn, TIMES, f"Time to read {size} once", sentence,
                         guess=guess and (guess, f"your guess: {time(guess)}"))
    sized = [row for row in rows if isinstance(row, tiers.Tier) and row.capacity]
    holds = [row.rung for row in sized if row.capacity >= nbytes]
    capacities = drawing.dots(
        [(row.rung + ("" if row.capacity >= nbytes else ": too small"), {"capacity": row.capacity})
         for row in sized],
        SIZES, "What one of each holds", f"{size} fit into one of {', '.join(holds) or 'none of these'}.",
        limit=(nbytes, size))
    return View((times, capacities), sentence, _ladder_notes(rows, streams, own))


def _ladder_notes(rows, streams: int, own) -> str:
    machine = tiers.get("s3").read
    most = tiers.streams_needed(machine, tiers.get(SCALING).read)
    borrowed = []
    for row in (row for row in rows if row.latency is None):
        fact, words = evidence.get(BORROWED[row.name][0]), BORROWED[row.name][1]
        borrowed.append(f"{row.title} borrows {words} ({fact.amount}, {fact.kind})")
    notes = ["Time is latency plus bytes over bandwidth; CPU DRAM and CXL are timed from the CPU. Where no source in "
             f"the ledger gives a latency, the nearest thing that has one lends it: {'; '.join(borrowed)}. The "
             "parallel file system's rate is that of all its servers together; object storage grows with what you "
             "store, so it has no capacity here."]
    if streams > most:
        notes.append(f"One instance's network ends at {units.format_rate(machine)}, some {most} connections; more "
                     "of them have to come from several machines.")
    if own is not None:
        notes.append(f"The rings are your machine, measured {own.date}; a rung that your file lacks has none.")
    return " ".join(notes)


_WEIGHTS = 140e9  # bytes: 70 billion parameters of 2 bytes

ladder = Explorer(
    name="tiers.ladder",
    title="The ladder",
    intro="Choose an amount of data and see how long each tier takes to read it once, and which of them could hold it.",
    controls=(
        Slider("nbytes", "Bytes to read", 4e3, 10e12, 1e9, "log", "bytes"),
        Slider("streams", "Connections to object storage", 1, 1000, 1, "log", "count"),
        FileChoice("own", "Beside the datasheets", "my machine's measured ladder …", own_ladder.read),
    ),
    more="More: your own machine",
    view=_ladder,
    presets={
        "a page of 4 KB": {"nbytes": 4e3},
        "weights of 8B, 16 GB": {"nbytes": 16e9},
        "weights of 70B, 140 GB": {"nbytes": _WEIGHTS},
        "the same over 1,000 connections": {"nbytes": _WEIGHTS, "streams": 1000},
        "training state of 70B, 1.12 TB": {"nbytes": 1.12e12},
    },
    predict=Prediction(
        "HBM hands over the 140 GB of a 70B model's weights in some 42 ms. How long does **one connection to object "
        "storage** take for the same bytes?",
        truth=lambda values: _seconds(tiers.get(SCALING), values["nbytes"], values["streams"]),
        values={"nbytes": _WEIGHTS, "streams": 1}, low=0.1, high=1e6, unit="s",
        lesson="Now give it a thousand connections."),
)


REQUESTS = Axis("bytes in each read", 512, units.GiB, lambda value: units.format_bytes(value, binary=True),
                tuple((size, units.format_bytes(size, binary=True)) for size in
                      (units.KiB, 32 * units.KiB, units.MiB, 32 * units.MiB, units.GiB)))
RATES = Axis("bandwidth reached", 1e6, 1e11, units.format_rate, RATE_TICKS)
DRIVES = [name for name in tiers.names("NVMe") if tiers.get(name).latency and tiers.get(name).read]


def _reached(drive, request, in_flight) -> float:
    return tiers.small_read_bandwidth(request, drive.latency, drive.read, in_flight)


def _small_reads(request, in_flight, drive, own, guess=None) -> View:
    tier = tiers.get(drive)
    reached, best = _reached(tier, request, in_flight), units.format_rate(tier.read)
    needed = tiers.in_flight_needed(request, tier.latency, tier.read)
    size, less = units.format_bytes(request, binary=True), tier.read / reached
    say = f"{size} at a time reaches " if in_flight == 1 else f"Reads of {size}, {in_flight:,} in flight, reach "
    say += f"{units.format_rate(reached)}, "
    say += (f"{number(less)} times less than the drive's {best}; {needed:,} in flight are enough." if less > 1.005
            else "all the drive has.")
    sizes = [512 * 2 ** (step / 2) for step in range(43)]
    curves = [(label, [(each, _reached(tier, each, depth)) for each in sizes])
              for label, depth in {"1 in flight": 1, f"{in_flight:,} in flight": in_flight}.items()]
    points = [("this read", request, reached)]
    note = f"{tier.title}: {best}, and {units.format_time(tier.latency)} before the first byte of a read."
    found = own and own.best("NVMe", "small read")
    if found and found.request and (found.bandwidth or found.latency):
        rate = found.bandwidth or found.request * found.in_flight / found.latency
        points.append(("your disk", found.request, rate))
        note += (f" Your disk, measured {own.date}: {units.format_rate(rate)} with "
                 f"{units.format_bytes(found.request, binary=True)} reads, {found.in_flight} in flight.")
    elif own is not None:
        note += " Your file has no small reads of a disk in it."
    figure = drawing.lines(curves, REQUESTS, RATES, "Bandwidth against the size of a read", say, points=points,
                           limit=(tier.read, f"{best}, one long read"),
                           guess=guess and (4096, guess, f"your guess: {units.format_rate(guess)}"))
    return View(figure, say, note)


small_reads = Explorer(
    name="tiers.small_reads",
    title="Small reads, and how to pay for them",
    intro="A drive's datasheet gives the speed of long reads. Each read also waits for its first byte; many at once "
          "share that wait.",
    controls=(
        Slider("request", "Bytes in each read", 512, units.GiB, units.GiB, tuple(2**n for n in range(9, 31)),
               "binary bytes"),
        Slider("in_flight", "Reads in flight (queue depth)", 1, 1024, 1, "log", "count"),
        Choice("drive", "Drive", {name: tiers.get(name).title for name in DRIVES}, "micron-9550", more=True,
               open=False),
        FileChoice("own", "Beside the datasheet", "my machine's measured ladder …", own_ladder.read),
    ),
    more="More: another drive, your own disk",
    view=_small_reads,
    presets={
        "one long read of 1 GiB": {},
        "4 KiB at a time": {"request": 4096},
        "4 KiB, 32 in flight": {"request": 4096, "in_flight": 32},
        "4 KiB, 206 in flight": {"request": 4096, "in_flight": 206},
        "1 MiB at a time": {"request": units.MiB},
    },
    predict=Prediction(
        "In one long read this drive gives 14 GB/s. What is left when a program reads **4 KiB at a time**, waiting for "
        "each read before it asks for the next?",
        truth=lambda values: _reached(tiers.get(values["drive"]), values["request"], values["in_flight"]),
        values={"request": 4096, "in_flight": 1, "drive": "micron-9550"}, low=1e6, high=14e9, unit="bytes/s",
        lesson="Nearly all of that time goes by waiting. Now keep more reads in flight."),
)
