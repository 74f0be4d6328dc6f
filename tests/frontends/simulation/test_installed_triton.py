"""Where Triton is installed it keeps all but its driver: that of the simulated device needs no libcuda, and launches nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
pytest.importorskip("torch")

PACKAGE = {
    "__init__.py": "from . import backends, runtime",
    "backends/__init__.py": """
class Driver:
    def __init__(self):
        raise AssertionError("libcuda.so cannot found!")
    @staticmethod
    def is_active():
        return False
class Backend:
    compiler, driver = "compiler", Driver
backends = {"nvidia": Backend}
""",
    "runtime/__init__.py": "from . import autotuner, jit",
    "runtime/jit.py": """
class JITFunction:
    def __init__(self, fn):
        self.fn, self.__name__ = fn, fn.__name__
    def run(self, *args, **kwargs):
        raise AssertionError("a kernel was launched")
""",
    "runtime/autotuner.py": """
class Autotuner:
    def __init__(self, fn):
        self.fn = fn
    def run(self, *args, **kwargs):
        raise AssertionError("candidates were timed")
""",
}
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
EARLY
from irscope.frontends.simulation.triton_stand_in import Guide
launched = []
Guide((9, 0), lambda kernel, given: launched.append(kernel)).install()
from triton.backends import backends
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction
driver = backends["nvidia"].driver()
assert backends["nvidia"].compiler == "compiler" and driver.is_active()
assert (driver.get_current_target().backend, driver.get_current_target().arch) == ("cuda", 90)
kernel = JITFunction(len)
kernel.run(1, grid=(1,), warmup=False)
Autotuner(kernel).run(1, grid=(1,))
assert launched[0] is kernel and launched[1].fn is kernel
import triton.runtime.jit
assert "raise AssertionError" in open(triton.runtime.jit.__file__).read()
"""


@pytest.mark.parametrize("early", ["", "import triton"])
def test_an_installed_triton_has_the_driver_of_the_simulated_device(early: str, tmp_path: Path) -> None:
    for name, text in PACKAGE.items():
        file = tmp_path / "triton" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("EARLY", early), str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
