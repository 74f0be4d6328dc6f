# make demo       analyse the sample models, simulate the sample jobs and print the tables
# make test       the tests that are quick enough for every change
# make test-full  all tests, with many more cases (minutes)
# make check      ruff, mypy and the import contracts
# make pages      docs/codes.md, docs/api.md, the manual page and the JSON schemas of docs/, from the source
# make fuzz       mutants of every kind of file for MINUTES=10; goes on where the last run ended
# make bench      how fast the core is on this machine
# make clean      remove what the targets above leave behind
#
# Everything is installed into .venv, once, and again when pyproject.toml or constraints.txt change.
# Without torch and ONNX Runtime (their tests are skipped then):  make test EXTRAS=dev
# With models of the transformers package, exported on the spot:  make test EXTRAS=dev,torch,ort,zoo
# With another Python, at least 3.11:                              make test PYTHON=python3.12
# With more workers than four (tests of the UI wait more than work): make test JOBS=8

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev,torch,ort
JOBS ?= 4
MINUTES ?= 10

PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed-$(EXTRAS)
COPY := build/check-copy

.PHONY: help demo test test-full check pages fuzz bench clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "irscope needs Python 3.11 or newer, this is " + sys.version)'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "Installing irscope[$(EXTRAS)] into $(VENV) (once; this may take some minutes) ..."
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

demo: $(INSTALLED)
	@$(PY) samples/build_samples.py
	@for model in samples/models/*.*; do \
		printf '\n==> irscope run --rows 5 %s\n' "$$model"; \
		$(VENV)/bin/irscope run --rows 5 --passes 'params,flops{top=5},liveness{top=5}' "$$model" 2>/dev/null || exit $$?; \
	done
	@if $(PY) -c 'import sys, torch; sys.exit(sys.platform != "linux")' 2>/dev/null; then \
		for job in '--world 8 samples/train_ddp.py' '--world 8 samples/train_fsdp2.py' '--world 4 samples/train_pipeline.py'; do \
			printf '\n==> irscope simulate --rows 5 --device h100 %s\n' "$$job"; \
			$(VENV)/bin/irscope simulate --rows 5 --device h100 $$job 2>/dev/null || exit $$?; \
		done; \
	fi
	@printf '\n==> irscope check samples/irscope.toml\n'; $(VENV)/bin/irscope check samples/irscope.toml
	@printf '\nBrowse one with: %s tui %s\n' $(VENV)/bin/irscope samples/models/cnn.onnx

test: $(INSTALLED)
	$(PY) -m pytest -n $(JOBS) -m 'not full'

test-full: $(INSTALLED)
	IRSCOPE_TEST_FULL=1 $(PY) -m pytest -n $(JOBS)

check: $(INSTALLED)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	@rm -rf build
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --target $(COPY) .
	cd $(COPY) && "$(abspath $(PY))" -m mypy --config-file "$(CURDIR)/pyproject.toml" --cache-dir "$(CURDIR)/.mypy_cache" -p irscope
	cd $(COPY) && PYTHONPATH=. "$(abspath $(VENV))/bin/lint-imports" --config "$(CURDIR)/pyproject.toml" --cache-dir "$(CURDIR)/.import_linter_cache" --no-logo

pages: $(INSTALLED)
	$(PY) -m tests.tools.pages

fuzz: $(INSTALLED)
	$(PY) -m tests.tools.fuzz --minutes $(MINUTES)

bench: $(INSTALLED)
	$(PY) -m tests.tools.bench

clean:
	rm -rf build dist *.egg-info .mutations samples/models .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find irscope frontends passes tui tests samples -name __pycache__ -type d -exec rm -rf {} +
