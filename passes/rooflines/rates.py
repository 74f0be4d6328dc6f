"""Peak rates of a device by element type, with substitutes for missing figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from irscope.devices.profile import DeviceProfile, Figure
from irscope.ir.dtypes import DType, DTypeKind

Tf32: TypeAlias = Literal["default", "all", "none"]

# An element type that a device has no rate for is converted to a wider one, which cannot be faster.
_WIDER = {"f4": "f8", "f8": "f16", "f16": "f32", "bf16": "f32", "tf32": "f32", "i4": "i8", "i8": "f16", "i32": "f32", "f32": "bf16"}
_SHORT = {
    DType.F64: "f64",
    DType.F32: "f32",
    DType.F16: "f16",
    DType.BF16: "bf16",
    DType.C64: "f32",
    DType.C128: "f64",
    DType.F4E2M1: "f4",
    DType.I8: "i8",
    DType.U8: "i8",
    DType.I4: "i4",
    DType.U4: "i4",
}


def rate_name(dtype: DType) -> str:
    """The element type as device files call it."""
    found = _SHORT.get(dtype)
    if found is not None:
        return found
    if dtype.kind is DTypeKind.FLOAT:
        return "f8"
    return "i32"


@dataclass(frozen=True)
class Rates:
    """Rates of one device. `tf32` says where products of f32 may run as TF32: PyTorch does so in convolutions, unless told otherwise."""

    device: DeviceProfile
    tf32: Tf32 = "default"

    def product(self, dtype: str, kernel: str = "") -> tuple[str, Figure] | None:
        """The rate of matrix products, or of a kind of convolution, with the element type whose rate it is; None where there is none."""
        device = self.device
        as_tf32 = self.tf32 == "all" or (self.tf32 == "default" and bool(kernel))
        if dtype == "f32" and as_tf32 and device.kind == "gpu" and "tf32" in device.matrix:
            dtype = "tf32"
        seen: set[str] = set()
        while dtype not in seen:
            seen.add(dtype)
            figure = device.kernels.get(kernel, {}).get(dtype) or device.matrix.get(dtype)
            if figure is not None:
                return dtype, figure
            dtype = _WIDER.get(dtype, dtype)
        return None

    def vector(self, dtype: str) -> float | None:
        """Operations a second outside of matrix products; by default, no faster than those."""
        vector = self.device.vector
        for name in (dtype, _WIDER.get(dtype, "f32"), "f32"):
            if name in vector:
                return vector[name].hi
        found = self.product(dtype)
        return None if found is None else found[1].hi

    def functions(self, dtype: str) -> float | None:
        """Exponentials and the like a second."""
        measured = self.device.functions
        return measured.hi if measured is not None else self.vector(dtype)
