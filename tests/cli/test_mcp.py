"""The server for assistants: its tools as commands, and, with the official package, a client that talks to it over standard streams."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.cli.mcp import ToolError, Tools
from irscope.errors import ExitCode
from tests.cli.test_check import FIXED

SAMPLES = Path(__file__).parents[2] / "samples"
TOOLS = ["card", "fit", "simulate", "explain", "compare"]


@pytest.fixture
def tools() -> Tools:
    return Tools(str(SAMPLES))


def test_a_card_has_its_main_numbers_and_the_whole_document(tools: Tools) -> None:
    answer = tools.card("mlp.irs", device="l4", bind="batch=2")
    assert (answer.fits, answer.device, answer.exit_code) == (True, "l4", 0)
    assert answer.parameters == 64 * 256 + 256 + 256 * 64 + 64
    assert answer.document["schema"] == "irscope.report/1"
    assert answer.command == "irscope run --format=json --device=l4 --bind=batch=2 mlp.irs"


@pytest.mark.slow
def test_a_fit_is_one_size(tools: Tools) -> None:
    answer = tools.fit("tagger.irs", memory="8GiB", device="h200")
    assert (answer.free, answer.largest) == ("batch", answer.document["largest"])
    assert answer.largest and answer.peak_bytes and answer.peak_bytes <= 8 << 30


def test_two_models_are_compared(tools: Tools) -> None:
    document = tools.compare("mlp.irs", "mlp.irs", bind="batch=1").document
    assert str(document["schema"]).startswith("irscope.")


def test_a_snapshot_is_explained(tools: Tools) -> None:
    document = tools.explain("recordings/oom.pickle").document
    assert document["schema"] == "irscope.explanation/1" and document["attributed_bytes"] <= document["live_bytes"]
    assert document["reports"][0]["summary"]["verdict"].startswith("out of memory: 7.81 GiB more at samples/train_oom.py:36")


@pytest.mark.slow
@pytest.mark.torch
def test_a_script_is_simulated_with_its_arguments(tools: Tools, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "job.py"
    script.write_text("import sys, torch\nkept = torch.empty(int(sys.argv[2]), device='cuda')\n", encoding="utf-8")
    answer = tools.simulate(str(script), ["--floats", str(1 << 20)], device="l4")
    assert (answer.outcome, answer.exit_code, answer.steps) == ("finished", 0, 0)
    assert "'--floats'" not in answer.command and answer.command.endswith(f"job.py --floats {1 << 20}")


@pytest.mark.parametrize("name", ["--trust-remote-code", "-o", ""])
def test_what_a_caller_names_is_no_option(name: str, tools: Tools) -> None:
    for call in (lambda: tools.card(name), lambda: tools.simulate(name), lambda: tools.compare("mlp.irs", name)):
        with pytest.raises(ToolError, match="names no model"):
            call()


def test_an_error_is_the_line_that_the_command_says(tools: Tools) -> None:
    with pytest.raises(ToolError, match=r"IRS100: gone.onnx: there is no such file"):
        tools.card("gone.onnx")


def test_the_list_of_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--list"]) == ExitCode.OK
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == TOOLS


@pytest.mark.skipif(importlib.util.find_spec("mcp") is not None, reason="mcp is installed")
def test_a_missing_package_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp"]) == ExitCode.USAGE
    assert capsys.readouterr().err == "irscope: error IRS726: the server needs the package mcp, 2.0 or newer (pip install 'mcp>=2')\n"


def test_a_client_talks_to_the_server_over_standard_streams(tmp_path: Path) -> None:
    pytest.importorskip("mcp.server.mcpserver")
    (tmp_path / "model.irs").write_text(FIXED, encoding="utf-8")
    client = f"""
import asyncio, json
from mcp import Client, StdioServerParameters

async def ask():
    server = StdioServerParameters(command={sys.executable!r}, args=["-m", "irscope", "mcp", "--folder", {str(tmp_path)!r}])
    async with Client(server) as client:
        listed = (await client.list_tools()).tools
        card = await client.call_tool("card", {{"model": "model.irs", "device": "l4"}})
        wrong = await client.call_tool("card", {{"model": "--trust"}})
        schemas = [tool.output_schema for tool in listed]
        print(json.dumps([[tool.name for tool in listed], schemas, card.structured_content, wrong.content[0].text]))

asyncio.run(ask())
"""
    done = subprocess.run([sys.executable, "-c", client], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    names, schemas, card, wrong = json.loads(done.stdout)
    assert names == TOOLS and "'--trust' names no model" in wrong
    assert {"fits", "reserved_bytes", "parameters", "document", "command"} <= set(schemas[0]["properties"])
    assert card["parameters"] == 32 and card["fits"] is True
