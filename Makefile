# make run    a first experiment, from a bare checkout: the digits, six selectors, five seeds
# make check  format, lint, types, quick tests: while you work, in under two minutes
# make test   format, lint, types, all tests: what must pass
# make docs   the documentation site, in build/docs/html: open index.html there; no server is needed
# make dist   wheel and source distribution, in dist/
# make dist-check   installs the wheel into fresh environments, of every Python from 3.11 on that is found (minutes)
# make torture MINUTES=10 [SEED=...] [ONLY=replies,store]   hostile input, damaged files, killed processes
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := install --quiet --disable-pip-version-check --constraint constraints.txt

MINUTES ?= 10

.PHONY: run check test torture docs dist dist-check style format bench-selection bench-selectors bench-simulation bench-flower bench-scale bench-growth bench-attacks bench-python clean

run: $(VENV)/installed
	$(BIN)/equifl run

QUICK := not slow and not compiled and not ray and not flower and not nvflare and not browser and not deployment

# Files of tests side by side: much of the suite waits for processes. Threads that wait must not spin.
WORKERS ?= 3
PYTEST := OMP_WAIT_POLICY=passive OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

check: style
	$(PYTEST) --hypothesis-profile quick -m '$(QUICK)'

test: style
	$(PYTEST)

torture: $(VENV)/installed
	$(BIN)/python -m torture --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) $(if $(OUT),--out $(OUT))

docs: $(VENV)/installed
	$(BIN)/python -m tools.site build/docs

dist: $(VENV)/installed
	rm -rf dist
	$(BIN)/python -m build --no-isolation

dist-check: dist
	$(BIN)/python -m tools.dist_check dist

style: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The peers have pins of their own, hence an environment of their own.
bench-selection: $(VENV)-bench/installed
	$(VENV)-bench/bin/python benchmarks/selection.py

bench-selectors: $(VENV)/installed
	$(BIN)/python benchmarks/every_selector.py

bench-simulation: $(VENV)/installed
	$(BIN)/python benchmarks/simulation.py

bench-growth: $(VENV)/installed
	$(BIN)/python benchmarks/growth.py

bench-python: $(VENV)/installed
	$(BIN)/python benchmarks/python_api.py

bench-scale: $(VENV)/installed $(VENV)-bench/installed
	$(BIN)/python benchmarks/scale.py --peers $(VENV)-bench/bin/python

bench-flower: $(VENV)/installed
	$(BIN)/python benchmarks/flower.py

bench-attacks: $(VENV)/installed
	$(BIN)/python benchmarks/attacks.py

$(VENV)/installed: EXTRAS := dev
$(VENV)-bench/installed: EXTRAS := bench

%/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $*
	$*/bin/python -m pip $(PIP_INSTALL) --editable '.[$(EXTRAS)]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-bench* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
