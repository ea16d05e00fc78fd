"""What several explorers and questions share: the course's round numbers, and how many tokens a model can be given."""

from memtier import weights
from memtier.live.text import beyond, several

BILLION, TRILLION = 10**9, 10**12
SEVENTY = 70 * BILLION  # parameters; the round number of the course's tables
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400  # seconds


def fitting(model, tokens: int, least: int = 1) -> tuple[int, str]:
    """As many of these tokens as the model can be given, and a note where a reader should know more.

    A gpt2 takes no more than it has learnt positions for; another takes any number, but was perhaps made for fewer.
    least: what is needed at all. Raises ValueError where the model has not learnt so many positions.
    """
    most = weights.longest(model)
    if most is not None and most < least:
        raise ValueError(f"{model.name} has learnt {several(most, 'position')}, and {least} tokens are needed here;"
                         " choose another model")
    if most is not None and tokens > most:
        return most, f"{model.name} has learnt {several(most, 'position')}; no sequence is longer."
    return tokens, beyond(tokens, model.positions)
