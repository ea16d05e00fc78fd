"""How far memtier, and what others use, are from torch: the results of benchmarks/accuracy.py, read and shown.

A row is one thing that torch measured and the others predicted:

    {"quantity": "activations", "model": "llama-3.1-8b", "how": {"batch": 1, …}, "torch": 14280…, "memtier": 14280…,
     "peers": {"Korthikanti": 30601…, …}}
"""

import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from memtier import checks, drawing, models
from memtier.table import Table

QUANTITIES = ("parameters", "training state", "KV cache", "activations")
LEAST = 1e-4  # relative error that the figure can still show; what is exact stands at its edge


@dataclass(frozen=True)
class Summary:
    """Errors of one calculator in one quantity, as fractions of torch's value; signs dropped.

    answered: how many rows it has an answer for. exact: how many of these are equal to torch's value.
    """

    name: str
    answered: int
    exact: int
    median: float
    largest: float


@dataclass(frozen=True)
class Results:
    """One run of the benchmark.

    versions: package → version. sources: calculator → what exactly was asked. configs: config.json of each small model.
    rows: as described at the top of this module.
    """

    date: str
    machine: str
    versions: dict[str, str]
    sources: dict[str, str]
    configs: dict[str, dict]
    rows: list[dict]

    def of(self, quantity: str, published: bool | None = None) -> list[dict]:
        """Rows of a quantity; published=True those of published models, False those of small random ones."""
        checks.one_of("quantity", quantity, QUANTITIES)
        return [row for row in self.rows if row["quantity"] == quantity and
                (published is None or (row["model"] not in self.configs) == published)]

    def families(self) -> dict[str, int]:
        """Family → configurations whose activations were measured."""
        counted = dict.fromkeys(models.FAMILIES, 0)
        for row in self.of("activations"):
            config = self.configs.get(row["model"])
            counted[config["model_type"] if config else models.get(row["model"]).family] += 1
        return counted

    def summaries(self, quantity: str, published: bool | None = None) -> tuple[Summary, ...]:
        """memtier first, then the others by their median error; who has no answer for any row is left out."""
        errors: dict[str, list[float]] = {}
        for row in self.of(quantity, published):
            for name, answer in {"memtier": row["memtier"], **row["peers"]}.items():
                errors.setdefault(name, []).append(abs(answer / row["torch"] - 1))
        found = [Summary(name, len(each), each.count(0), statistics.median(each), max(each))
                 for name, each in errors.items()]
        return tuple(sorted(found, key=lambda each: (each.name != "memtier", each.median)))

    def asked(self) -> Table:
        """What exactly was asked of each of the others."""
        return Table("What was asked", ("", "source"), tuple(self.sources.items()))

    def answers(self) -> Table:
        """How many rows of each quantity each calculator has an answer for; a dash where it has none at all."""
        counts = {quantity: {each.name: str(each.answered) for each in self.summaries(quantity)}
                  for quantity in QUANTITIES}
        rows = ((name, *(counts[quantity].get(name, "–") for quantity in QUANTITIES))
                for name in ("memtier", *self.sources))
        return Table("How many configurations have an answer", ("", *QUANTITIES), tuple(rows))

    def table(self, quantity: str, published: bool | None = None) -> Table:
        """Median and largest error of each calculator."""
        rows = self.of(quantity, published)
        caption = f"{quantity}: {len(rows)} configurations, errors against torch {self.versions['torch']}"
        return Table(caption, ("", "answered", "equal", "median", "largest"), tuple(
            (each.name, str(each.answered), str(each.exact), say(each.median), say(each.largest))
            for each in self.summaries(quantity, published)))

    def figure(self, quantity: str, published: bool | None = None) -> drawing.Figure:
        """Median and largest error of each calculator as dots on a log axis."""
        found = self.summaries(quantity, published)
        top = max([1.0, *(each.largest for each in found)])
        axis = drawing.Axis("error against torch", LEAST, top * 1.2, say=say)
        dots = [(f"{each.name} ({each.answered})", {"median": each.median, "largest": each.largest}) for each in found]
        words = "; ".join(f"{each.name}: median {say(each.median)}, largest {say(each.largest)}" for each in found)
        return drawing.dots(dots, axis, f"Errors in {quantity}, and for how many configurations there is an answer",
                            f"One lane a calculator, a dot for its median error and a ring for its largest. {words}.")

    def residuals(self) -> Iterator[dict]:
        """Rows where memtier differs from torch."""
        return (row for row in self.rows if row["memtier"] != row["torch"])


def say(error: float) -> str:
    """A relative error in words, its sign dropped.

    >>> say(0), say(1e-8), say(0.0592), say(46.2)
    ('0', 'under 0.001 %', '5.9 %', '4,620 %')
    """
    percent = 100 * abs(error)
    if percent == 0:
        return "0"
    if percent < 0.001:
        return "under 0.001 %"
    if percent >= 100:
        return f"{float(f'{percent:.3g}'):,.0f} %"
    return f"{float(f'{percent:.2g}'):g} %"


def read(path: str | Path) -> Results:
    """The results in a file that `write` made."""
    return Results(**json.loads(Path(path).read_text(encoding="utf-8")))


def write(results: Results, path: str | Path) -> None:
    """Write results as JSON, one row a line, so that two runs can be compared with diff."""
    content = asdict(results)
    head = {name: content[name] for name in ("date", "machine", "versions", "sources")}
    lists = {name: ",\n".join(_lines(content[name])) for name in ("configs", "rows")}
    text = json.dumps(head, indent=1, ensure_ascii=False)[:-2]
    text += f',\n "configs": {{\n{lists["configs"]}\n }},\n "rows": [\n{lists["rows"]}\n ]\n}}\n'
    Path(path).write_text(text, encoding="utf-8")


def _lines(content: dict | list) -> list[str]:
    if isinstance(content, dict):
        return [f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in content.items()]
    return [f"  {json.dumps(value, ensure_ascii=False)}" for value in content]
