"""What scripts import: `irscope.load`, `irscope.run`, and what a pass of one's own needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import IrscopeError
from irscope.frontends.base import LoadOptions
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.spelling import parse_input_type
from irscope.ir.types import TensorType, Type
from irscope.passes.graph.folding import derived_weight
from irscope.passes.graph.rewriting import Pattern, rewriting
from irscope.passkit.base import Analysis, Pass, PassContext, Transform
from irscope.passkit.decorators import analysis, transform
from irscope.passkit.manager import Runnable
from irscope.passkit.registry import register
from irscope.recording.records import Recording
from irscope.report.card import Card
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Series, Table
from irscope.session import Model, Results, capture_model, check_target, open_model
from irscope.tools.capture import capture_training
from irscope.tools.card import card
from irscope.tools.config import settings_for, target_settings, targeted
from irscope.tools.fit import Fit, fit
from irscope.tools.fit_generation import GenerationFit, fit_generation
from irscope.tools.generate import generate
from irscope.tools.rewrite import Rewritten, scheduled
from irscope.tools.rewrite import rewrite as write_rewritten
from irscope.tools.simulate import simulate

if TYPE_CHECKING:
    from torch import nn

    from irscope.frontends.eager.checkpointing import ModulePlan

__all__ = [
    "Analysis",
    "Card",
    "Column",
    "Coverage",
    "Diagnostic",
    "Fit",
    "GenerationFit",
    "Graph",
    "IrscopeError",
    "Model",
    "Node",
    "Pass",
    "PassContext",
    "Pattern",
    "Report",
    "Results",
    "Series",
    "Severity",
    "Table",
    "TensorType",
    "Transform",
    "Type",
    "Value",
    "analysis",
    "apply_checkpoints",
    "capture",
    "capture_training",
    "card",
    "derived_weight",
    "fit",
    "fit_generation",
    "generate",
    "load",
    "plan_checkpoints",
    "record",
    "register",
    "rewrite",
    "rewriting",
    "run",
    "scheduled",
    "simulate",
    "transform",
]


def load(
    path: str | PathLike[str],
    inputs: Mapping[str, str | Type] | None = None,
    bind: Mapping[str, int] | None = None,
    open_sizes: Iterable[str] = (),
    *,
    base: str = "",
    trust_remote_code: bool = False,
    ort_level: str = "off",
    use_ort: bool = False,
    ort: str = "",
    device: str = "",
) -> Model:
    """Read a model file, or take a model by name, such as "torchvision:resnet50", "./train.py:build" or the folder of a hub.

    `inputs` gives types, as "f32[1,3,224,224]" or the sizes alone, under "" for an only input; `bind` gives sizes of symbols. A named
    model has numbers for all its sizes, but for those of `open_sizes`, such as "batch". `base` is what an adapter's folder goes on top of;
    `trust_remote_code` lets code in a folder run, where its configuration asks for that.
    `ort_level` takes an ONNX file as a session of ONNX Runtime has it after these optimisations: basic, extended or all,
    predicted, or with `use_ort` as an installed onnxruntime says, which makes a session and never runs it. `ort` is the release of ONNX
    Runtime, such as "1.20"; else the installed one, or the newest that is known. `device` is what it is opened for, as --device takes it;
    else this machine's GPU, the one that `irscope config` set, or the default.
    """
    types = {name: parse_input_type(given) if isinstance(given, str) else given for name, given in (inputs or {}).items()}
    options = LoadOptions(
        inputs=types,
        bind=dict(bind or {}),
        open_sizes=frozenset(open_sizes),
        base=base,
        trust_remote_code=trust_remote_code,
        ort_level=ort_level,
        use_ort=use_ort,
    )
    return targeted(open_model(Path(path), options, settings=settings_for(device, ort=ort, is_session=ort_level != "off" or use_ort)))


def capture(
    module: nn.Module, *args: object, device: str = "cuda", compile: bool | Mapping[str, object] = False, **kwargs: object
) -> Model:
    """Run an nn.Module once with these arguments on a pretended device, and make a model of what ran.

    Nothing is computed and no memory is taken: weights and arguments may be real, fake or on the meta device. The module stays as it is.
    `device` is "cuda", "cpu", or the name of a device that irscope knows, such as "a100". `compile` is True, or arguments of torch.compile
    such as {"mode": "reduce-overhead"}: then nodes are the kernels of the compiled program, and memory is what it asks for. So it is for a
    module that torch.compile returned, or that holds compiled ones.
    """
    return capture_model(module, args, kwargs, device=device, compile=compile)


def record(
    module: nn.Module, *args: object, output: str | PathLike[str], repeats: int = 20, warmup: int = 3, **kwargs: object
) -> Recording:
    """Run an nn.Module with these arguments, on the device where it is, and write a recording of times and memory.

    This executes the module, in this process. `irscope.recording` reads recordings again.
    """
    from irscope.measure.record.torchrun import record_module

    return record_module(module, args, kwargs, Path(output), repeats=repeats, warmup=warmup)


def run(
    model: Model, passes: Runnable | Sequence[Runnable] = "default", device: str = "", torch: str = "", alloc_conf: str = ""
) -> Results:
    """Run passes over a loaded model; results by pass name.

    `passes` is the text of a pipeline, a pass, the class of one, or several of these. `device`, `torch` and `alloc_conf` (what
    PYTORCH_CUDA_ALLOC_CONF holds) say what memory and time are meant for, in this run; else it is what the model was opened for.
    """
    given = model.manager.settings
    wanted = replace(given, device=device, chosen="") if device else given
    wanted = replace(wanted, torch=torch or given.torch, alloc_conf=alloc_conf or given.alloc_conf)
    settings = target_settings(model.program, wanted)
    check_target(settings)
    return model.run(passes, settings)


def rewrite(
    path: str | PathLike[str],
    passes: Runnable | Sequence[Runnable],
    target: str | PathLike[str],
    *,
    bind: Mapping[str, int] | None = None,
    external: bool = False,
) -> Rewritten:
    """Run transforms over an .onnx or .pt2 file and write what it is then to another one, with its weights.

    What no pass touched is copied as it is; a node that cannot be written is an error that names it. `external`: weights of an .onnx file
    in a file beside it.
    """
    model = open_model(Path(path), LoadOptions(bind=dict(bind or {}), keep_calls=True))
    return write_rewritten(model, passes, Path(target), external=external)


def plan_checkpoints(
    module: nn.Module,
    inputs: Any,
    loss: Callable[[Any], Any],
    budget: str | int,
    *,
    seconds: float = 10.0,
    steps: int | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> ModulePlan:
    """Return what to save and what to recompute in a module's step, so that what the step makes stays within a budget.

    `inputs` are the arguments of the forward, `loss` makes a number of what it returns. The budget, such as "4GiB" or "60%" of the peak
    when everything is kept, is for what forward and backward make: activations and gradients, not parameters and inputs. With `steps`
    instead of `seconds` the plan is the same every time. `device` is where the step will run, "cpu" or "cuda". Nothing is computed.
    """
    from irscope.devices import target_of
    from irscope.devices.catalogue import DEFAULT_PROCESSOR
    from irscope.passes.training.checkpoint import budget_of
    from irscope.passkit.settings import Settings
    from irscope.tools.train import module_plan

    wanted: int | Callable[[int], int] = budget if isinstance(budget, int) else lambda peak: budget_of(budget, peak)
    args = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    target = target_of(Settings(device=DEFAULT_PROCESSOR if device == "cpu" else ""))
    return module_plan(module, args, loss, wanted, target=target, seconds=seconds, steps=steps, seed=seed)


def apply_checkpoints(module: nn.Module, plan: ModulePlan | Mapping[str, Any]) -> Callable[[], None]:
    """Make a module recompute as a plan, or the JSON of one, says, by `torch.utils.checkpoint`. What is returned undoes that."""
    from irscope.frontends.eager.checkpointing import apply_policies, policies_of

    return apply_policies(module, policies_of(plan) if isinstance(plan, Mapping) else plan.policies)
