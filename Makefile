# make demo       analyse the sample models, simulate the sample jobs and print the tables
# make test       the tests that are quick enough for every change
# make test-slow  the tests of whole programs that take seconds each; CI runs them too
# make test-named  the quick tests of models by name, folders, engines and `generate`, with transformers in a folder of its own
# make quick      a part of each package's tests in less than a minute, to be run while one writes
# make test-matrix  the wheel and the quick tests beside other releases of torch, transformers, ONNX Runtime and Python (CORNERS="'torch 2.15'")
# make test-full  all tests, with many more cases (minutes)
# make check      ruff, the language and links of the pages, mypy and the import contracts
# make pages      docs/codes.md, docs/commands.md, docs/api.md, the manual page, the JSON schemas of docs/ and the helps of commands, from the source
# make site       the documentation as a site, in build/site (needs the extra docs)
# make release-check  wheel and source archive in dist/, looked over, installed into a clean environment and tried
# make fuzz       mutants of every kind of file for MINUTES=10; goes on where the last run ended
# make bench      how fast irscope is on this machine, beside its peers
# make bench-compare  the same, and what became slower since the last release
# make bench-keep  the same, kept in benchmarks/ and shown in docs/performance.md
# make field      public programs from FIELD=folder under `irscope simulate`, and the table of docs/field.md
# make clean      remove what the targets above leave behind
#
# Everything is installed into .venv, once, and again when pyproject.toml or constraints.txt change.
# Without torch and ONNX Runtime (their tests are skipped then):  make test EXTRAS=dev
# With models of the transformers package, exported on the spot:  make test EXTRAS=dev,torch,ort,zoo
# With another Python, at least 3.11:                              make test PYTHON=python3.12
# With more workers than three (tests of the UI wait more than work): make test JOBS=8

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev,torch,ort
JOBS ?= 3
MINUTES ?= 10

# The IR, each reader, each family of passes, the reports, the commands, the UI and a simulated loop.
QUICK := $(addprefix tests/, \
	$(addprefix unit/, ir ops/test_symbols.py ops/test_completeness.py memory/test_placement.py memory/test_caching.py \
		passes/test_explain_peak.py passes/test_sweep.py passes/test_flops.py passes/test_roofline.py passes/test_modules.py \
		passes/test_inference.py passes/test_schedule.py passes/test_store_as.py report/test_agreement.py report/test_formats.py \
		devices recording/test_recordings.py weights/test_formats.py training/test_steps.py test_front_door.py test_session.py) \
	$(addprefix frontends/, onnx/test_reader.py onnx/test_lowering.py torch/test_lowering.py torch/test_checkpoint.py test_gguf.py \
		test_nodefile.py eager/test_capture.py zoo/test_names.py) \
	$(addprefix cli/, test_card.py test_commands.py test_help.py test_simulate.py::test_steps_stop_it) \
	$(addprefix tui/, test_params.py test_folds.py test_outline.py test_screens.py::test_bookmarks) \
	hygiene/test_packages.py hygiene/test_module_size.py oracle/test_ort_memory.py conformance/test_conformance.py)

# What transformers needs beside what the tests install; no folder of this path may be called models, which transformers reads as its own.
NAMED := transformers accelerate huggingface-hub tokenizers safetensors regex tqdm pyyaml typer httpx2 httpcore2 h11 anyio idna truststore psutil
NAMED_TESTS := $(addprefix tests/, $(addprefix frontends/zoo/, test_adapters.py test_folders.py test_names.py test_tuning.py) \
	unit/tools/test_engines.py cli/test_fit_generation.py $(addprefix cli/test_generate.py::, \
		test_counters_are_those_of_the_recorded_call \
		test_a_fault_after_the_real_run_is_an_error test_a_scheme_that_stores_no_layer_is_one_line))

PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed-$(EXTRAS)
COPY := build/check-copy

.PHONY: help demo test test-slow test-named quick list-quick test-matrix test-full check pages site release-check fuzz bench bench-compare bench-keep field clean

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
	$(PY) -m pytest -n $(JOBS) --dist worksteal --durations 20 -m 'not full and not slow'

test-slow: $(INSTALLED)
	$(PY) -m pytest -n $(JOBS) --dist worksteal --durations 20 -m 'slow and not full'

test-named: $(INSTALLED)
	@$(PY) -m pip install --quiet --disable-pip-version-check --retries 1 --no-deps --no-compile --upgrade -c constraints.txt \
		--target $(VENV)/named $(NAMED) && PYTHONPATH="$(abspath $(VENV))/named" $(PY) -c 'from transformers import LlamaForCausalLM' \
		|| { echo "transformers cannot be installed here: its tests do not run"; exit 0; }; \
	PYTHONPATH="$(abspath $(VENV))/named" \
		$(PY) -m pytest -n $(JOBS) --dist worksteal --durations 5 -m 'not full and not slow' $(NAMED_TESTS)

quick: $(INSTALLED)
	$(PY) -m pytest -n 2 --dist worksteal --durations 5 -m 'not full and not slow' $(QUICK)

list-quick:
	@echo $(QUICK)

test-matrix: $(INSTALLED)
	$(PY) -m tests.tools.matrix --quick --page $(CORNERS)

test-full: $(INSTALLED)
	IRSCOPE_TEST_FULL=1 $(PY) -m pytest -n $(JOBS) --dist worksteal

check: $(INSTALLED)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pytest -q -p no:cacheprovider tests/hygiene/test_style.py tests/hygiene/test_site.py
	@rm -rf build
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --target $(COPY) .
	cd $(COPY) && "$(abspath $(PY))" -m mypy --config-file "$(CURDIR)/pyproject.toml" --cache-dir "$(CURDIR)/.mypy_cache" -p irscope
	cd $(COPY) && PYTHONPATH=. "$(abspath $(VENV))/bin/lint-imports" --config "$(CURDIR)/pyproject.toml" --cache-dir "$(CURDIR)/.import_linter_cache" --no-logo

pages: $(INSTALLED)
	$(PY) -m tests.tools.pages

site: $(INSTALLED)
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt 'mkdocs-material>=9.5'
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet

release-check: $(INSTALLED)
	$(PY) -m tests.tools.release_check

fuzz: $(INSTALLED)
	$(PY) -m tests.tools.fuzz --minutes $(MINUTES)

bench: $(INSTALLED)
	$(PY) -m benchmarks

bench-compare: $(INSTALLED)
	$(PY) -m benchmarks --against benchmarks

bench-keep: $(INSTALLED)
	$(PY) -m benchmarks --save --page

field: $(INSTALLED)
	$(PY) -m benchmarks.field --field "$(FIELD)" --site "$(SITE)" --truth --page

clean:
	rm -rf build dist *.egg-info .mutations samples/models .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find irscope frontends passes tui tests samples -name __pycache__ -type d -exec rm -rf {} +
