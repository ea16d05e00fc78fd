"""Asks the packages others use, each run as it is published, in a virtual environment of its own.

The environments are made on first use under .venv/peers, where `make clean` removes them. A package is asked by a small
script beside this file (ask_*.py) that reads the rows from standard input as JSON and prints its answers as JSON.
"""

import json
import os
import subprocess
import sys
import venv
from dataclasses import asdict, dataclass
from pathlib import Path

from memtier import accuracy, models

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".venv" / "peers"


@dataclass(frozen=True)
class Package:
    """name and version: on the package index. needs: installed before it, in this order."""

    name: str
    version: str
    needs: tuple[str, ...] = ()

    @property
    def script(self) -> Path:
        return HERE / f"ask_{self.name.replace('-', '_')}.py"


PACKAGES = (
    # torch first and by itself, so that its CPU build serves the package; transformers to build the models it counts.
    Package("deepspeed", "0.19.8", ("torch==2.13.0", "numpy", "setuptools", "wheel", "transformers==5.24.0")),
    Package("accelerate", "1.15.0", ("torch==2.13.0", "numpy", "transformers==5.24.0")),
    Package("llm-analysis", "0.2.2"),  # brings transformers 4.31, which is why each package has its own environment
)
SOURCES = {
    "DeepSpeed": "deepspeed's estimate_zero3_model_states_mem_needs, one GPU, nothing offloaded, given the true count",
    "DeepSpeed, model on meta": "deepspeed's model_to_params of a model on the meta device: it tells tensors apart"
                                " by address, and there all addresses are 0",
    "DeepSpeed, model in memory": "deepspeed's model_to_params of a model in memory, for models up to 200 M parameters",
    "accelerate, command": "accelerate estimate-memory: it builds the model without its head, each tensor in memory"
                           " before it is emptied",
    "accelerate, function": "accelerate's calculate_maximum_sizes of the whole model; counts buffers as well",
    "llm-analysis": "LLMAnalysis.training, given every size that its ModelConfig has a field for, as an endless GPU"
                    " would run it; for one sequence at a time it adds the logits twice",
}


def python_of(package: Package) -> Path:
    """The Python of the package's environment, which is made if it is not there."""
    folder = ENVIRONMENTS / package.name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    ready = folder / f".{package.name}-{package.version}"
    if not ready.exists():
        print(f"Making an environment for {package.name} {package.version} …", flush=True)
        venv.create(folder, with_pip=True)
        settings = os.environ | {"DS_BUILD_OPS": "0"}  # DeepSpeed's estimators need none of its compiled parts
        for wanted in (*package.needs, f"{package.name}=={package.version}"):
            subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", wanted],
                           check=True, env=settings)
        ready.touch()
    return python


def ask(package: Package, results: accuracy.Results) -> tuple[str, list[tuple[int, str, float]]]:
    """The package's version, and its answers: the row's number, under what name of SOURCES, how much.

    Raises RuntimeError with what it printed where its script fails.
    """
    names = dict.fromkeys(row["model"] for row in results.rows)
    question = {"rows": results.rows, "models": {name: _sizes(name, results.configs) for name in names}}
    done = subprocess.run([python_of(package), package.script], input=json.dumps(question), text=True,
                          capture_output=True, env=os.environ | {"PYTHONWARNINGS": "ignore"})
    if done.returncode:
        raise RuntimeError(f"{package.script.name} failed:\n{done.stderr[-3000:]}")
    sys.stdout.write(f"{package.name} {package.version} has answered\n")
    said = json.loads(done.stdout.splitlines()[-1])
    return said["version"], [tuple(answer) for answer in said["answers"]]


def _sizes(name: str, configs: dict) -> dict:
    """A model's config.json, and its sizes under memtier's names."""
    model = models.from_config(configs[name]) if name in configs else models.get(name)
    sizes = {key: value for key, value in asdict(model).items() if key != "config_json"}
    return sizes | {"config": model.config, "parameters": model.parameters}
