"""Explorers and questions: declared once, shown in Jupyter and on a page.

>>> from memtier import live
>>> live.get("tiers.ladder").title
'The ladder'
"""

import json
import pkgutil
from importlib import import_module

from memtier import checks
from memtier.live import explorers, questions
from memtier.live.explorer import Explorer, Prediction, View
from memtier.live.live import Live
from memtier.live.question import Misconception, Question

__all__ = ["Explorer", "Live", "Misconception", "Prediction", "Question", "View", "answer", "get", "names"]


def _declared(package, kind: str) -> dict[str, Live]:
    module = import_module(f"{package.__name__}.{kind}")
    return {each.name: each for each in vars(module).values() if isinstance(each, Live)}


def names() -> tuple[str, ...]:
    """The names of all explorers and questions."""
    return tuple(name for package in (explorers, questions) for module in pkgutil.iter_modules(package.__path__)
                 for name in _declared(package, module.name))


def get(name: str) -> Live:
    """The explorer or question of that name, "kind.what". Raises ValueError, listing the known names."""
    kind = str(name).split(".")[0]
    for package in (explorers, questions):
        if any(module.name == kind for module in pkgutil.iter_modules(package.__path__)):
            found = _declared(package, kind).get(name)
            if found is not None:
                return found
    raise ValueError(f"name is {checks.brief(name)}; it must be one of {', '.join(names())}")


def answer(text: str) -> str:
    """The reply to an ask, both as JSON text: the one entry of the page's worker. See memtier.live.live.

    ask: as respond takes it, plus "name". Whatever goes wrong comes back as {"error": one sentence}.
    """
    try:
        ask = json.loads(text)
        return json.dumps(get(ask["name"]).respond(ask), allow_nan=False)
    except Exception as error:  # whatever it is, the page goes on
        return json.dumps({"error": Live.problem(error)})
