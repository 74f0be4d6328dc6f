"""FLOPs of a module of PyTorch, a transformer's encoder of 12 layers, beside torch's counter, which runs the module, and fvcore.

fvcore traces it.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from typing import Any

from benchmarks.clock import best_of
from benchmarks.measurement import Measurement

LAYERS, WIDTH, HEADS, INNER, TOKENS = 12, 256, 4, 1024, 128


def measure() -> Iterator[Measurement | str]:
    """CPU seconds of each way; a line for what is not installed."""
    if importlib.util.find_spec("torch") is None:
        yield "torch is not installed: nothing was measured"
        return
    import torch

    import irscope

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, batch_first=True)
    # As a trace sees it: the fused kernel of a whole layer is not what counters know.
    module = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).train()
    inputs = torch.randn(1, TOKENS, WIDTH)
    captured, _ = best_of(3, lambda: irscope.capture(module, inputs))
    models = iter([irscope.capture(module, inputs) for _ in range(3)])
    counting, _ = best_of(3, lambda: next(models).run("flops"))
    counted = captured + counting
    yield Measurement("capture", captured, "CPU s")
    yield Measurement("count the FLOPs of a captured model", counting, "CPU s")
    yield Measurement(
        "capture and count, beside torch's counter", counted, *_beside("FlopCounterMode", counted, lambda: _torch(module, inputs))
    )
    try:
        import fvcore.nn  # noqa: F401  # needs more packages than it says
    except ImportError as problem:
        yield f"fvcore was not measured: {problem}"
    else:
        yield Measurement("capture and count, beside fvcore", counted, *_beside("fvcore", counted, lambda: _fvcore(module, inputs)))


def _beside(name: str, counted: float, work: Any) -> tuple[str, str, float]:
    return "CPU s", name, counted / best_of(3, work)[0]


def _torch(module: Any, inputs: Any) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        module(inputs)
    return counter.get_total_flops()


def _fvcore(module: Any, inputs: Any) -> float:
    import logging

    from fvcore.nn import FlopCountAnalysis

    logging.disable(logging.WARNING)
    return float(FlopCountAnalysis(module, (inputs,)).unsupported_ops_warnings(False).uncalled_modules_warnings(False).total())
