"""Numbers quoted in book/04-optimizer-state.ipynb."""

from prose.common import EIGHT, SEVENTY, card, fact, kept, needed, offload, on_each, running, size, state, written

from memtier import checkpoints, layout, models, optimizer_state, recipes, tiers, units

NOTEBOOK = "book/04-optimizer-state.ipynb"


def recipe(name="bf16-adam"):
    return recipes.get(name)


def each(name="bf16-adam"):
    """Bytes a parameter."""
    return recipe(name).per_parameter


QUOTED = {
    # the hook, and sixteen bytes
    "fill 140 GB of their 160 GB":
        lambda: f"fill {size(state(recipe='inference').total)} of their {size(2 * card())}",
    "The state of training is 1.12 TB": lambda: f"The state of training is {size(state().total)}",
    "8 times the 140 GB of serving": lambda: f"{state().total / state()['weights']:g} times the 140 GB of serving",
    "1.75 times the 640 GB of the node":
        lambda: f"{state().total / (8 * card()):g} times the {size(8 * card())} of the node",
    "1 billion parameters take 16 GB": lambda: f"1 billion parameters take {size(state(1e9).total)}",
    "are **16 bytes**": lambda: f"are **{each():g} bytes**",
    "means the 12 bytes that only the update touches":
        lambda: f"means the {recipe().master + recipe().optimizer} bytes that only the update touches",
    "is the moments alone, 8 bytes": lambda: f"is the moments alone, {recipe().optimizer} bytes",
    "stored in bf16: 2 bytes": lambda: f"stored in bf16: {recipe().weights} bytes",
    "an fp32 copy of w: 4 bytes": lambda: f"an fp32 copy of w: {recipe().master} bytes",
    # recipes
    "The sum is 18 bytes a parameter": lambda: f"The sum is {each('bf16-adam-fp32-grads')} bytes a parameter",
    "also gradients (14 bytes)": lambda: f"also gradients ({each() - recipe().weights} bytes)",
    "so 14 bytes a parameter": lambda:
        f"so {checkpoints.inventory(1e9, recipe='bf16-adam').total / 1e9:g} bytes a parameter",
    "These 28 bytes": lambda: f"These {offload().memory_bytes / 70e9:g} bytes",
    "37 % and not 75 %": lambda: "{:.0%} and not {:.0%}".format(
        1 - state(EIGHT, "adam-8bit").total / state(EIGHT).total, 1 - 2 / 8).replace("%", " %"),
    "here 16.3 GB": lambda: f"here {size(state(EIGHT, 'lora').total)}",
    "234 GB": lambda: size(state(13e9, "bf16-adam-fp32-grads").total),
    "97.5 %": lambda: f"{100 * state(13e9, 'bf16-adam-fp32-grads').total / (3 * card()):.3g} %",
    # ZeRO
    "8 GPUs hold 385 GB each": lambda: f"8 GPUs hold {size(on_each(8, 1).total)} each",
    "512 GPUs hold 281.6 GB each": lambda: f"512 GPUs hold {size(on_each(512, 1).total, 4)} each",
    "64 times the GPUs bought 27 %": lambda:
        f"{512 // 8} times the GPUs bought {100 * (1 - on_each(512, 1).total / on_each(8, 1).total):.0f} %",
    "4P is 280 GB": lambda: f"4P is {size(on_each(2**60, 1).total)}",
    "it needs 2.19 GB": lambda: f"it needs {size(on_each(512, 3).total)}",
    "while a layer runs 8.1 GB": lambda: f"while a layer runs {size(running().total, 2)}",
    "has 70.55 billion parameters, which at rest take 2.205 GB": lambda:
        f"has {units.format_count(models.get(SEVENTY).parameters, 4)} parameters, which at rest take "
        f"{size(on_each(512, 3, SEVENTY).total, 4)}",
    "1.7 GB for one layer": lambda: f"{size(running()['gathered layer'], 2)} for one layer",
    "4.2 GB": lambda: size(running()["gathered root"], 2),
    "40 GB of weights": lambda: f"{size(state(20e9)['weights'])} of weights",
    "14P = 280 GB": lambda: f"14P = {size(state(20e9).total - state(20e9)['weights'])}",
    "40 + 280/20 = 54 GB": lambda: f"40 + 280/20 = {size(on_each(20, 2, 20e9).total)}",
    # rows, and how many GPUs
    "1,808 of them": lambda: f"{10_000 - 8192:,} of them" if layout.rows(8192, 10_000, 8191) else "",
    "rank 0 still needs 90.6 GB": lambda: f"rank 0 still needs {size(on_each(64, 3, 'mixtral-8x7b').total)}",
    "the average says 11.7 GB":
        lambda: f"the average says {size(on_each(64, 3, 'mixtral-8x7b', rank='average').total)}",
    "6,480 GB, divided by 100 and rounded up, is 65":
        lambda: f"{state(405e9).total / 1e9:,.0f} GB, divided by 100 and rounded up, is {needed(405e9)}",
    "Rows make it 66": lambda: f"Rows make it {needed('llama-3.1-405b')}",
    "takes 77. All": lambda: f"takes {needed('llama-3.1-405b', gathered=True)}. All",
    "50 GB": lambda: size(card() - 30e9),
    "44 GB": lambda: size(50e9 - running()["gathered root"] - running()["gathered layer"], 2),
    "1,270 GB": lambda: f"{state(SEVENTY, 'bf16-adam-fp32-grads').total / 1e9:,.0f} GB",
    "29 GPUs": lambda: "{} GPUs".format(
        needed(SEVENTY, recipe="bf16-adam-fp32-grads", limit=50e9, gathered=True)),
    # checkpoints
    "One checkpoint of 70B is 0.98 TB":
        lambda: f"One checkpoint of 70B is {checkpoints.inventory(70e9, recipe='bf16-adam').total / 1e12:.2f} TB",
    "49 s": lambda: f"{written(20e9):.2g} s",
    "1.96 s": lambda: f"{written(500e9):.3g} s",
    "0.51 s": lambda: f"{written(30e9, 64):.2f} s",
    "15.3 GB": lambda: size(checkpoints.inventory(70e9, recipe="bf16-adam").total / 64),
    "62.7 TB": lambda: size(64 * checkpoints.inventory(70e9, recipe="bf16-adam").total),
    # offload
    "840 GB": lambda: size(kept()),
    "So 0.93 s against 13.1 s": lambda:
        f"So {tiers.transfer_time(kept(), 900e9):.2f} s against {tiers.transfer_time(kept(), 64e9):.1f} s",
    "900 GB/s": lambda: units.format_rate(fact("link.nvlink-c2c.both-directions")),
    "512 GB of memory": lambda: f"{size(offload().capacity)} of memory",
    "the gradients go down, 140 GB": lambda: f"the gradients go down, {size(offload().down)}",
    "the new weights come up, 140 GB": lambda: f"the new weights come up, {size(offload().up)}",
    "are 1.96 TB": lambda: f"are {size(offload().memory_bytes)}",
    "546 GB/s": lambda: units.format_rate(tiers.get("grace-lpddr5x").read),
    "it moves 546 GB/s": lambda: f"it moves {units.format_rate(tiers.get('grace-lpddr5x').read)}",
    "a C2C link, which takes 0.62 s for both": lambda:
        f"a C2C link, which takes {offload('nvlink-c2c').link_seconds:.2f} s for both",
    "costs more, 4.4 s, until about a fifth of it is hidden": lambda: (
        f"costs more, {offload().link_seconds:.1f} s, until about a fifth of it is hidden"
        if round(1 - offload().update_seconds / offload().link_seconds, 1) == 0.2 else ""),
    "63 GB/s are left, with which the explorer and the rest of this page count: 13.3 s": lambda: (
        "{} are left, with which the explorer and the rest of this page count: {:.1f} s".format(
            units.format_rate(tiers.link("pcie5-x16").rate), offload(update="gpu").up_seconds)),
    "they take 3.6 s": lambda: f"they take {offload().update_seconds:.1f} s",
    "2.2 s each way": lambda: f"{offload().up_seconds:.1f} s each way",
    "at 63 GB/s, that gives 840 GB and 13.3 s": lambda: "at {}, that gives {} and {:.1f} s".format(
        units.format_rate(tiers.link("pcie5-x16").rate), size(offload(update="gpu").up),
        offload(update="gpu").up_seconds),
    # what gets written
    "1.12 TB of it in each step": lambda: "{} of it in each step".format(
        size(optimizer_state.traffic(70e9, recipe="bf16-adam").written.total)),
    "16.3 GB a step": lambda: f"{size(checkpoints.inventory(70e9, recipe='bf16-adam').total / 60)} a step",
    "128,256 entries": lambda: f"{models.get(SEVENTY).vocab:,} entries",
    "0.26 s": lambda: f"{tiers.get('sandisk-hbf').read_time(kept(), streams=2):.2f} s",
    "2.42 PB": lambda: size(kept() * 86400 / 30),
    "17.5 PB": lambda: size(tiers.get("micron-9550").endurance),
    "some 5 GB/s": lambda: "some {:.0f} GB/s".format(
        (fact("nvme.zero3-optimizer.rate-low") + fact("nvme.zero3-optimizer.rate-high")) / 2e9),
    # beliefs
    "takes 77 GPUs, not 65": lambda: "takes {} GPUs, not {}".format(
        needed("llama-3.1-405b", gathered=True), needed(405e9)),
    "512 need 6.02 GB": lambda: f"512 need {size(on_each(8, 1).total / 64)}",
    "128.5 GB would become 32.1 GB": lambda:
        f"{size(state(EIGHT).total, 4)} would become {size(state(EIGHT).total / 4)}",
    "80.6 GB": lambda: size(state(EIGHT, "adam-8bit").total),
    "896 GB": lambda: size(state(8 * 7e9).total),
    "12 GPUs of 80 GB are reserved, where 10 would": lambda:
        f"{needed(8 * 7e9, limit=card())} GPUs of 80 GB are reserved, "
        f"where {needed(models.get('mixtral-8x7b').parameters, limit=card())} would",
    "46.7 billion parameters": lambda: f"{units.format_count(models.get('mixtral-8x7b').parameters)} parameters",
    "56 billion parameters": lambda: f"{units.format_count(8 * 7e9)} parameters",
    "747.2 GB": lambda: size(state("mixtral-8x7b").total, 4),
    "80 GiB are 85.9 GB": lambda: f"80 GiB are {size(80 * units.GiB)}",
    "7.4 % or 5.9 GB more than 80 GB": lambda:
        f"{100 * (units.GiB / units.GB - 1):.1f} % or {size(80 * units.GiB - 80 * units.GB, 2)} more than 80 GB",
    # try it
    "holds 17.8 GB": lambda: f"holds {size(on_each(64, 2, EIGHT).total)}",
    "16.1 GB of that": lambda: f"{size(on_each(64, 2, EIGHT)['weights'])} of that",
    "takes 3.08 s, but": lambda: f"takes {offload(update='gpu').memory_seconds:.2f} s, but",
    "4.44 s": lambda: f"{offload().link_seconds:.2f} s",
    "and C2C 0.62 s": lambda: f"and C2C {offload('nvlink-c2c').link_seconds:.2f} s",
    "86 %": lambda: f"{100 * (1 - offload('nvlink-c2c').link_seconds / offload().link_seconds):.0f} %",
    # the two cases
    "96.4 GB of it": lambda: f"{size(kept(EIGHT))} of it",
    "12.5 GB to spare": lambda: f"{size(tiers.get('h200-hbm').capacity - state(EIGHT).total)} to spare",
    "17.6 GB at rest": lambda: f"{size(on_each(64, 3, SEVENTY).total)} at rest",
    "23.6 GB": lambda: size(on_each(64, 3, SEVENTY, gathered=True).total),
    "56.4 GB": lambda: size(card() - on_each(64, 3, SEVENTY, gathered=True).total),
}

GIVEN = (
    "80 GB", "80 GiB",  # a GPU, and what it is mistaken for
    "100 GB", "30 GB",  # limits that the examples set
    "20 GB/s", "500 GB/s", "30 GB/s", "64 GB/s",  # rates that the questions give
    "a step of 30 s",
    "35 minutes", "40 minutes", "2 minutes",  # how long a reader takes
    "70 billion parameters", "13 billion parameters", "20 billion parameters", "405 billion parameters",
    "20 GPUs", "64 GPUs", "10,000 GPUs", "64 nodes",
)
