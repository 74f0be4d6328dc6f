"""Recording a live module in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from irscope.recording.read import read_recording
from irscope.recording.records import Input, ModelRecord, Recording
from irscope.runtime.record.dtypes import type_text
from irscope.runtime.record.machine import processor
from irscope.runtime.record.request import Options, Request
from irscope.runtime.record.sink import Sink
from irscope.runtime.record.torchmodel import of_module
from irscope.runtime.record.torchrun import OP_TIME, record_on_cpu, torch_header


def record_module(
    module: torch.nn.Module,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    output: Path,
    *,
    repeats: int = 20,
    warmup: int = 3,
) -> Recording:
    """Run a module as it is, on the device where its parameters are, and write a recording of it."""
    named = dict(keywords)
    leaves = [leaf for leaf in pytree.tree_leaves((tuple(arguments), named)) if isinstance(leaf, torch.Tensor)]
    inputs = tuple(Input(str(number), type_text(leaf.dtype, leaf.shape)) for number, leaf in enumerate(leaves))
    device = next((one.device for one in (*module.parameters(), *module.buffers(), *leaves)), torch.device("cpu"))
    options = Options(device=str(device), repeats=repeats, warmup=warmup)
    request = Request(ModelRecord(type(module).__name__, "module", "", "", inputs), options, str(output))
    model = of_module(module, tuple(arguments), named)
    sink = Sink(output)
    if device.type == "cuda":
        from irscope.runtime.record.cudarun import begin_on_cuda, record_on_cuda

        begin_on_cuda(request, device, sink)
        record_on_cuda(model, request, device, sink)
    else:
        sink.begin(torch_header(request, processor(torch.get_num_threads()), OP_TIME))
        record_on_cpu(model, request, sink)
    sink.finish()
    return read_recording(output)
