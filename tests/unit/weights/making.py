"""Tensors for tests: arrays written to a file, and what numpy says of them in float64."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from irscope.ir.dtypes import DType
from irscope.ir.places import FileRegion
from irscope.weights.result import TensorStatistics, Unread
from irscope.weights.scan import Options, scan
from irscope.weights.source import WeightFiles
from irscope.weights.tensors import Stored, axes_of

Array = npt.NDArray[Any]
ONE_THREAD = Options(threads=1)


def look(
    folder: Path, array: Array, dtype: DType = DType.F32, options: Options = ONE_THREAD, shape: tuple[int, ...] | None = None
) -> TensorStatistics:
    """Statistics of an array that lies in a file, at an offset that is not a multiple of anything."""
    path = folder / "values.bin"
    raw = np.ascontiguousarray(array).tobytes()
    path.write_bytes(b"?" * 13 + raw)
    shape = shape or array.shape
    count = math.prod(shape)
    with WeightFiles(str(folder / "model.irs")) as files:
        source = files.find(FileRegion(str(path), 13, len(raw)))
        (tensor_statistics,) = scan([Stored(dtype, count, source, axes_of(shape))], files, options)
    assert not isinstance(tensor_statistics, Unread), tensor_statistics
    return tensor_statistics


def truth(array: Array) -> dict[str, float]:
    """What numpy says in extended precision, of finite elements."""
    x = array.astype(np.longdouble).reshape(-1)
    x = x[np.isfinite(x)]
    mean = x.mean()
    away = x - mean
    variance = (away**2).mean()
    made = {"mean": mean, "std": np.sqrt(variance), "min": x.min(), "max": x.max(), "l1": np.abs(x).sum(), "l2": np.sqrt((x * x).sum())}
    if variance > 0:
        made["skewness"] = (away**3).mean() / variance**1.5
        made["kurtosis"] = (away**4).mean() / variance**2
    return {name: float(value) for name, value in made.items()}
