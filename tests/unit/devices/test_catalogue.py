"""Devices are found by name, alias and file, and every figure of the catalogue is plausible."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from irscope.cli.main import main
from irscope.devices import catalogue
from irscope.devices.catalogue import all_devices, device_names, find_device, target_of, torch_version
from irscope.devices.profile import DeviceProfile, parse_profile
from irscope.devices.releases import RELEASES
from irscope.errors import UsageError
from irscope.passkit.settings import Settings
from tests.tables import every

DEVICES = all_devices()
GPUS = [device for device in DEVICES if device.capability]


def record(**fields: Any) -> dict[str, Any]:
    """A small valid record, with some fields changed."""
    figure = {"value": 10, "unit": "TFLOP/s", "source": "me"}
    base: dict[str, Any] = {
        "name": "mine",
        "title": "My card",
        "kind": "gpu",
        "sources": {"me": {"text": "measured at home", "date": "2026-01"}},
        "matrix": {"f32": figure},
        "bandwidth": {"value": 500, "unit": "GB/s", "source": "me"},
    }
    return {**base, **fields}


@pytest.mark.parametrize("text", ["h200", "H200", "NVIDIA H200", "h200-sxm", "H200 SXM"])
def test_a_device_is_found_however_it_is_written(text: str) -> None:
    assert find_device(text).name == "h200"


def test_names_of_torch_find_their_device() -> None:
    assert find_device("NVIDIA H100 80GB HBM3").name == "h100"
    assert find_device("NVIDIA GeForce RTX 3090").name == "rtx-3090"
    assert find_device("rtx3090") == find_device("RTX 3090")


def test_an_unknown_name_lists_what_is_known() -> None:
    with pytest.raises(UsageError, match=r"no device 'h2000'.*did you mean 'h200'\?.*a100.*v100") as caught:
        find_device("h2000")
    assert caught.value.code == "IRS420"


def test_a_device_may_have_another_size_of_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = find_device("H100:96GiB")
    assert (profile.name, profile.title, profile.memory_bytes) == ("h100", "NVIDIA H100 SXM with 96GiB", 96 << 30)
    assert profile.room_bytes == (96 << 30) - profile.context_most and profile.bandwidth == find_device("h100").bandwidth
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(record()))
    assert find_device(f"{path}:24GB").memory_bytes == 24 * 10**9
    for text in ("h100:96", "h100:96parsecs"):
        with pytest.raises(UsageError) as caught:
            find_device(text)
        assert caught.value.code == "IRS336"
    sample = str(Path(__file__).parents[3] / "samples" / "mlp.irs")
    assert main(["run", "--device", "h100", "--memory", "40GiB", sample]) == 0
    assert "h100 40.00 GiB" in capsys.readouterr().out.replace(",", "")


@pytest.mark.parametrize(
    "text", ["NVIDIA GH200 480GB", "NVIDIA B300 SXM6 AC", "NVIDIA H20", "NVIDIA GB200", "NVIDIA GeForce RTX 5080", "mi355x"]
)
def test_devices_of_the_last_years_are_found(text: str) -> None:
    assert find_device(text).memory_bytes


def test_a_user_file_is_a_device(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(record(memory={"value": 24, "unit": "GiB", "source": "me"})))
    profile = find_device(str(path))
    assert (profile.title, profile.memory_bytes, profile.ridge("f32")) == ("My card", 24 * 2**30, 20.0)
    assert profile.bandwidth is not None and profile.bandwidth.source == "measured at home"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "toaster"}, "kind: no such name: 'toaster'; there are gpu, cpu, accelerator"),
        ({"bandwith": 3}, "bandwith: there is no such field; there are name, title"),
        ({"bandwidth": {"value": 500, "unit": "GiB/s", "source": "me"}}, "bandwidth.unit: no such unit: 'GiB/s'; there are MB/s"),
        ({"bandwidth": {"value": -1, "unit": "GB/s", "source": "me"}}, "larger than zero"),
        ({"bandwidth": {"value": True, "unit": "GB/s", "source": "me"}}, "bandwidth.value: a number or null is wanted, not True"),
        ({"bandwidth": {"value": float("nan"), "unit": "GB/s", "source": "me"}}, "NaN is not a JSON number"),
        ({"bandwidth": {"value": 5, "unit": "GB/s", "source": "you"}}, "bandwidth.source: no such source: 'you'; there are me"),
        ({"bandwidth": {"value": 5, "unit": "GB/s"}}, "bandwidth: 'source' is missing"),
        ({"matrix": {"fp16": {"value": 1, "unit": "TFLOP/s", "source": "me"}}}, "matrix: no such name: 'fp16'; there are f64"),
        ({"matrix": [1]}, "matrix: an object is wanted, not"),
        ({"capability": "nine"}, "capability: a CUDA compute capability"),
        ({"sources": {"me": {"text": "x"}}}, "sources.me: 'date' is missing"),
        ({"memory": {"lo": 1, "hi": 2, "unit": "GiB", "source": "me"}}, "memory: one number is wanted"),
        ({"levels": [{"name": "L1"}]}, r"levels\[0\]: 'bandwidth' is missing"),
        ({"aliases": "x"}, "aliases: a list is wanted, not 'x'"),
        ({"name": ""}, "name: some text is wanted"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_place(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        parse_profile(json.dumps(record(**change)), "mine.json")
    assert caught.value.code == "IRS421" and caught.value.where == "mine.json"


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 100_000, "\xff\xfe", '{"a": 1' + " " * (1 << 20)])
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(UsageError) as caught:
        find_device(str(path))
    assert caught.value.code == "IRS421"


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UsageError, match=r"nowhere/gpu\.json: cannot be read: No such file"):
        find_device("nowhere/gpu.json")


def test_a_plugin_adds_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "plugged_devices"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mine.json").write_text(json.dumps(record()))
    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("plugged", "plugged_devices", "irscope.devices")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == "irscope.devices" else [])
    catalogue._with_plugins.cache_clear()
    try:
        assert find_device("mine").title == "My card"
        (package / "mine.json").write_text(json.dumps(record(name="h200")))
        catalogue._with_plugins.cache_clear()
        with pytest.raises(UsageError, match="is both NVIDIA H200 SXM and My card"):
            device_names()
    finally:
        catalogue._with_plugins.cache_clear()


def test_there_are_devices_of_every_sort() -> None:
    assert len(DEVICES) >= 20
    assert {device.kind for device in DEVICES} == {"gpu", "cpu", "accelerator"}
    assert sum("Laptop" in device.title for device in DEVICES) >= 2 and sum("RTX" in device.title for device in DEVICES) >= 6


@every("device", DEVICES, ids=lambda device: device.name)
def test_figures_are_plausible(device: DeviceProfile) -> None:
    assert device.bandwidth is not None and device.matrix
    # From a laptop's memory to the newest stacks: what is off by 1000 (GB for MB, bits for bytes) falls out.
    assert 50e9 <= device.bandwidth.hi <= 10e12
    for dtype, figure in device.matrix.items():
        assert 1e11 <= figure.lo <= figure.hi <= 2e16, dtype
        assert figure.hi <= 2 * figure.lo, "clocks differ by no more than a factor of two"
    for figure in (*device.matrix.values(), *device.vector.values(), device.bandwidth):
        assert (figure.source and figure.date[-4:].isdigit()) or figure.date[-2:].isdigit()
        assert "sparsity" not in figure.source or "half" in figure.source
    if device.memory_bytes is not None:
        assert 2 * 2**30 <= device.memory_bytes <= 512 * 2**30
    if device.power is not None:
        assert 10 <= device.power.lo <= device.power.hi <= 1500
        assert device.idle_power is None or device.idle_power.hi < device.power.hi / 2


@every("device", DEVICES, ids=lambda device: device.name)
def test_rates_are_dense_and_in_order(device: DeviceProfile) -> None:
    """A figure for 2:4 sparsity beside a dense one would break the ladder of rates from wide to narrow elements."""
    rate = {dtype: figure.hi for dtype, figure in device.matrix.items()}
    for wide, narrow, most in (
        ("f32", "tf32", 16.1),
        ("tf32", "f16", 2.1),
        ("f16", "f8", 2.1),
        ("f16", "i8", 4.1),
        ("i8", "i4", 2.1),
        ("f8", "f4", 4.1),
    ):
        if wide in rate and narrow in rate:
            assert rate[wide] <= rate[narrow] * 1.01, (wide, narrow)
            assert rate[narrow] <= most * rate[wide], (wide, narrow)
    if "f16" in rate and "bf16" in rate:
        assert rate["f16"] == rate["bf16"]
    half = device.ridge("bf16") or device.ridge("f16")
    if half is not None and "bf16" in rate and device.kind != "cpu":
        assert 25 <= half <= 500, "dense 16-bit rates are 25 to 500 FLOP a byte of every device there is"
    for dtype, figure in device.vector.items():
        assert figure.hi <= rate.get(dtype, figure.hi) * 1.01


@every("device", GPUS, ids=lambda device: device.name)
def test_gpus_follow_from_their_chips(device: DeviceProfile) -> None:
    """The f32 rate is multiprocessors x lanes x 2 x clock: the clock that it implies must be one that such chips run at."""
    assert device.capability is not None and device.multiprocessors and device.memory_bytes and device.context_bytes
    assert device.threads_per_multiprocessor in (1024, 1536, 2048)
    lanes = {(7, 0): 64, (7, 5): 64, (8, 0): 64}.get(device.capability, 128)
    clock = device.vector["f32"].hi / (device.multiprocessors * lanes * 2)
    assert 1.2e9 <= clock <= 2.7e9


def test_the_rates_of_two_data_sheets() -> None:
    """Against the dense rates that PyTorch's own table and the H100 white paper give."""
    h100, a100 = find_device("h100"), find_device("a100")
    assert h100.matrix["bf16"].hi == pytest.approx(989e12, rel=0.01) and a100.matrix["bf16"].hi == 312e12
    l4 = find_device("l4").bandwidth
    assert l4 is not None and l4.hi == 300e9


def test_targets_have_defaults_and_know_their_versions() -> None:
    target = target_of(Settings())
    assert (target.device.name, target.torch, target.text) == ("h200", (2, 13), "NVIDIA H200 SXM, torch 2.13")
    assert target_of(Settings(device="a100", torch="2.8")).torch == (2, 8)
    assert torch_version("2.13.0+cu130") == (2, 13) and torch_version("v2.9") == (2, 9)
    assert [torch_version(f"{major}.{minor}") for major, minor in RELEASES] == list(RELEASES)
    for text in ("1.13", "2.99", "2", "two", "2.x", "²·13", "2.²"):
        with pytest.raises(UsageError, match=r"versions: 2\.8, 2\.9.*2\.15"):
            torch_version(text)


def test_the_command_lists_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    listing = capsys.readouterr().out
    assert all(device.name in listing for device in DEVICES)
    assert main(["devices", "h200", "--format", "json"]) == 0
    [report] = json.loads(capsys.readouterr().out)["reports"]
    assert report["summary"]["ridge"]["bf16"] == pytest.approx(206.1, abs=0.1)
    assert main(["devices", "h2000"]) == 2
    assert "IRS420" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("there", "taken", "why"),
    [
        (None, (2, 13), "default"),
        ((2, 13), (2, 13), "default"),
        ((2, 15), (2, 15), "installed"),
        ((2, 99), max(RELEASES), "installed is 2.99, whose rules are not known"),
        ((2, 3), min(RELEASES), "installed is 2.3, whose rules are not known"),
    ],
)
def test_the_version_of_torch_is_that_of_the_installed_one(
    there: tuple[int, int] | None, taken: tuple[int, int], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "installed_torch", lambda: there)
    assert catalogue.default_torch() == (taken, why)
    assert torch_version("") == taken and torch_version("2.9") == (2, 9)


def test_the_installed_version_is_read_without_importing_torch() -> None:
    code = "import sys; from irscope.devices.catalogue import installed_torch; print(installed_torch()); assert 'torch' not in sys.modules"
    strip = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    try:
        numbers = metadata.version("torch").split(".")[:2]
    except metadata.PackageNotFoundError:
        assert strip == "None"
    else:
        assert strip == str((int(numbers[0]), int(numbers[1])))
