"""Numbers quoted in exercises/04-optimizer-state.ipynb."""

from prose.common import offload, on_each, size, state, time

from memtier import optimizer_state, recipes

NOTEBOOK = "exercises/04-optimizer-state.ipynb"


def graces(memories):
    return optimizer_state.offload(70e9, recipe="bf16-adam", link="nvlink-c2c", memory="grace-lpddr5x", links=memories,
                                   memories=memories)


def lean(moments):
    recipe = recipes.Recipe("all-bf16", "", weights=2, gradients=2, master=0, optimizer=2 * moments, source="")
    return size(optimizer_state.inventory(7e9, recipe=recipe).total)


QUOTED = {
    # how the questions work
    "1.12 TB, 1120 GB and 1043 GiB": lambda:
        f"{size(state().total)}, {state().total / 1e9:.0f} GB and {state().total / 2**30:.0f} GiB",
    # try it
    "from 122 GB to 76.4 GB with 8-bit Adam and to 60.9 GB with Adafactor": lambda: (
        "from {} to {} with 8-bit Adam and to {} with Adafactor".format(
            *(size(state("qwen2.5-7b", name).total) for name in ("bf16-adam", "adam-8bit", "adafactor")))),
    "what is left, 15.4 GB,": lambda: f"what is left, {size(state('qwen2.5-7b', 'lora').total)},",
    "should be about 2 bytes, and": lambda: f"should be about {recipes.get('bf16-adam').weights} bytes, and",
    "about 16 bytes a parameter": lambda: f"about {recipes.get('bf16-adam').per_parameter} bytes a parameter",
    "come to rest at 1.12 TB, 280 GB and 140 GB": lambda: "come to rest at {}, {} and {}".format(
        *(size(on_each(2**60, stage).total) for stage in (0, 1, 2))),
    "16, 4 and 2 bytes a parameter, which": lambda: "{:.0f}, {:.0f} and {:.0f} bytes a parameter, which".format(
        *(on_each(2**60, stage).total / 70e9 for stage in (0, 1, 2))),
    "so 8 bytes a parameter, 56 GB for 7 billion": lambda:
        f"so {2 + 2 + 2 * 2} bytes a parameter, {lean(2)} for 7 billion",
    "10 bytes, 70 GB": lambda: f"10 bytes, {lean(3)}",
    "3.59 s on one Grace and 897 ms on four": lambda:
        f"{time(offload().update_seconds)} on one Grace and {time(graces(4).update_seconds)} on four",
    "Four. The update": lambda: "Four. The update" if graces(3).update_seconds > 1 > graces(4).update_seconds else "",
    "its 311 ms are less than a fifth": lambda: (
        f"its {time(graces(2).link_seconds)} are less than a fifth"
        if graces(2).link_seconds < graces(2).update_seconds / 5 else ""),
}

GIVEN = (
    "2 % off",  # the tolerance of most questions
    "40 minutes",  # how long a reader takes
)
