"""ONNX Runtime's CUDA provider on a machine without a GPU: `python -m tests.tools.oracle.ort_cuda PACKAGE HEADERS OUT`.

PACKAGE is the folder `onnxruntime` of an unpacked onnxruntime-gpu wheel, HEADERS the folder `include` of the wheel nvidia-cuda-runtime. OUT
gets stand-ins for the CUDA libraries that the provider links to or opens: memory calls hand out addresses, kernels do nothing, and what is
not written by hand returns 0. With LD_LIBRARY_PATH=OUT a session has the CUDA provider, and its profile tells which kernels run where and
what its arena holds. FAKE_CUDNN_WS is the workspace in bytes that each plan of cuDNN asks for, FAKE_TRACE=1 prints requests to the device.
Needs g++ and nm.

That is how `tests/data/ort/cuda.json.gz` was recorded, and the table of kernels of `passes/ort` made (`get_all_opkernel_def()`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parent / "cuda_standins"
WRITTEN = {
    "libcudart.so.13": ("runtime.cpp", ""),
    "libcublasLt.so.13": ("libraries.cpp", "L_cublasLt"),
    "libcublas.so.13": ("libraries.cpp", "L_cublas"),
    "libcuda.so.1": ("libraries.cpp", "L_cuda"),
    "libnvrtc.so.13": ("libraries.cpp", "L_nvrtc"),
    "libcudnn.so.9": ("libraries.cpp", "L_cudnn"),
}
"""Libraries of which some functions are written by hand: the file, and the macro that chooses its part."""
OPENED = {"libcudnn.so.9": "cudnn", "libcufft.so.12": "cufft", "libnvrtc.so.13": "nvrtc"}
"""Libraries that the provider opens by name, and how their functions begin."""
UNVERSIONED = ("libcuda.so.1", "libcurand.so.10")


def wanted(package: Path) -> dict[str, set[str]]:
    """Functions by library: those that are linked, and those whose names stand in the provider."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for library in sorted((package / "capi").glob("*.so*")):
        for line in _run("nm", "-D", str(library)):
            kind, _, symbol = line.strip().partition(" ")
            name, _, version = symbol.partition("@")
            if kind in ("U", "w") and re.match(r"lib(cu|nv)", version.strip("@")):
                found[version.strip("@")].add(name)
            elif kind in ("U", "w") and re.match(r"cu[A-Z]", name):
                found["libcuda.so.1"].add(name)
    content = (package / "capi" / "libonnxruntime_providers_cuda.so").read_bytes()
    for library_name, start in OPENED.items():
        pattern = rb"\0(" + start.encode() + rb"[A-Z][A-Za-z0-9_]*)(?=\0)"
        found[library_name] = {match[1].decode() for match in re.finditer(pattern, content)}
    found["libcurand.so.10"].add("curandCreateGenerator")
    return found


def build(name: str, functions: set[str], headers: Path, out: Path) -> None:
    """One library."""
    source, macro = WRITTEN.get(name, ("libraries.cpp", ""))
    compiled, rest = out / f"{name}.o", out / f"{name}.c"
    flags = [f"-D{macro}"] if macro else []
    _run("g++", "-c", "-fPIC", "-O1", "-w", "-std=c++17", f"-I{headers}", *flags, str(SOURCES / source), "-o", str(compiled))
    made = {line.split()[-1] for line in _run("nm", "--defined-only", str(compiled)) if line.split()[1] in "TB"}
    rest.write_text("\n".join(f"long {function}(){{return 0;}}" for function in sorted(functions - made)) + "\nint standin;\n")
    link = [
        "gcc",
        "-shared",
        "-fPIC",
        "-w",
        "-fno-builtin",
        str(rest),
        str(compiled),
        "-o",
        str(out / name),
        f"-Wl,-soname,{name}",
        "-lstdc++",
    ]
    if name not in UNVERSIONED:
        script = out / f"{name}.map"
        script.write_text(f"{name} {{ global: *; }};\n")
        link.append(f"-Wl,--version-script={script}")
    _run(*link)


def _run(*command: str) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main(package: Path, headers: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, functions in wanted(package).items():
        build(name, functions, headers, out)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
