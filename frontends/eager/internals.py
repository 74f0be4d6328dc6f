"""Entries for the parts of torch's inside that irscope touches and that differ between versions, each recognised by what is there."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch


def _first(owner: Any, *names: str) -> str:
    """Return the first of several names that a module or class has."""
    for name in names:
        if hasattr(owner, name):
            return name
    raise LookupError(f"torch {torch.__version__}: {owner.__name__} has no {' or '.join(names)}")


def dynamo_optimizers() -> tuple[Any, str]:
    """Return Dynamo's class of optimizers, and the name of the method by which it reads their attributes.

    `var_getattr` until 2.13, `tp_getattro_impl`, which the class inherits, from 2.14 on.
    """
    kind = importlib.import_module("torch._dynamo.variables.optimizer").OptimizerVariable
    return kind, _first(kind, "var_getattr", "tp_getattro_impl")


def replaced(owner: Any, name: str, function: Callable[..., Any]) -> Callable[[], None]:
    """Give `owner` another function under a name, and return what undoes that; an inherited one shows again then."""
    own = vars(owner).get(name)
    setattr(owner, name, function)
    return (lambda: delattr(owner, name)) if own is None else (lambda: setattr(owner, name, own))


_CONTEXTS: Final = ("init_gpu_context", "init_cuda_context")


@contextmanager
def no_device_context() -> Iterator[None]:
    """Keep fake tensors from asking a real device for memory, which they do to make its context wherever there is one."""
    fakes: Any = importlib.import_module("torch._subclasses.fake_tensor")
    undo = [replaced(fakes, name, lambda device: None) for name in _CONTEXTS if hasattr(fakes, name)]
    try:
        yield
    finally:
        for restore in undo:
            restore()


def answer_cudnn_modes(modes: Mapping[str, int]) -> None:
    """Answer by which number cuDNN knows a kind of recurrent layer: torch asks a library that a build without CUDA lacks.

    Versions before 2.9 import the module of it where it is used.
    """
    rnn: Any = importlib.import_module("torch.backends.cudnn.rnn")
    rnn.get_cudnn_mode = lambda mode: modes[mode.lower()]
    if hasattr(torch.backends.cudnn, "rnn"):
        torch.backends.cudnn.rnn.get_cudnn_mode = rnn.get_cudnn_mode


def forget_triton() -> None:
    """Let torch ask again whether there is Triton, and which: what of it is asked, and kept, differs from release to release."""
    for function in vars(importlib.import_module("torch.utils._triton")).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def fsdp_param_dtypes(group: Any) -> list[torch.dtype | None]:
    """Return the types in which an FSDP2 group computes with its parameters: its own policy's until 2.14, each parameter's from 2.15 on."""
    policies = [group.mp_policy] if hasattr(group, "mp_policy") else [param.mp_policy for param in group.fsdp_params]
    return list(dict.fromkeys(policy.param_dtype for policy in policies))


_DENSE: Final = ("is_non_overlapping_and_dense_or_false", "is_non_overlapping_and_dense")


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has its numbers side by side, in any order: torch's own test, whose name has an end from 2.13 on (and in some
    releases before both names)."""
    module: Any = importlib.import_module("torch._prims_common")
    return bool(getattr(module, _first(module, *_DENSE))(tensor))


_VOTES: Final = ("_warmup_p2p", "_initialize_pipeline_distributed_state")
"""Names of the methods by which the schedule of a pipeline asks whether all stages know their shapes: from 2.12 to 2.14, and from
2.15 on."""
_STAGES: Final = "torch.distributed.pipelining.stage"


def pipeline_vote(frame: FrameType | None) -> int:
    """Return what is answered where nobody said anything, called from `frame`: zero, except to a pipeline whose stages ask each other
    whether all of them know their shapes. They are made by one program: others are taken to say what this rank's own say."""
    while frame is not None and frame.f_code.co_name not in _VOTES:
        frame = frame.f_back
    if frame is None:
        return 0
    mode: Any = frame.f_globals.get("InferenceMode")
    stages = frame.f_locals.get("stages", ())
    return int(not any(mode.needs_dynamic(stage._user_meta, frame.f_locals["has_backward"]) for stage in stages))


def neighbours_message(frame: FrameType | None) -> Any:
    """Return what a stage of a pipeline is sent by its neighbour, where it waits for that in `frame`; None elsewhere.

    The next stage sends what gradients of its inputs are like, from 2.12 on: as those inputs, which this stage made. What the
    stage before makes only another rank knows; it is taken to be what an earlier stage of this rank makes, if there is one.
    """
    while frame is not None and frame.f_globals.get("__name__") != _STAGES:
        frame = frame.f_back
    if frame is None:
        return None
    stage, asking = frame.f_locals["self"], frame.f_back
    if frame.f_locals.get("src_stage", -1) > stage.stage_index and asking is not None:
        passed = [one.detach() if one.requires_grad else None for one in asking.f_locals["fwd_outputs"]]
        metas = frame.f_globals["extract_tensor_metas"](tuple(passed), allow_none=True)
        return frame.f_globals["_StageBackwardMeta"](backward_metas=metas)
    number = stage.stage_index
    caller = asking
    while caller is not None and "next_stage_args" not in caller.f_locals:
        caller = caller.f_back
    others = getattr(caller.f_locals["self"], "_stages", ()) if caller is not None else ()
    earlier = [other for other in others if other.stage_index < number and other._stage_meta.outputs]
    if earlier:
        return frame.f_globals["_StageForwardMeta"](forward_metas=earlier[-1]._stage_meta.outputs)
    raise NotImplementedError(
        f"stage {number} of the pipeline asks stage {number - 1}, on another rank, which tensors it gets, and only that rank knows: "
        "give PipelineStage its input_args and output_args"
    )


def fake_groups() -> tuple[type, Callable[[int, int, Any], Any]]:
    """Return the class of a fake process group's options, and what makes a group of a rank, a size and options.

    Until 2.9 its class makes it, and until 2.8 it has no options of its own.
    """
    core: Any = torch._C._distributed_c10d
    fake = core.FakeProcessGroup
    if hasattr(fake, "_create_internal"):
        return fake.Options, fake._create_internal
    if fake.Options is not core.Backend.Options:
        return fake.Options, fake

    class Options(core.Backend.Options):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("fake")

    return Options, lambda rank, size, options: fake(rank, size)


_REGISTRY: Final = "_ZN4c10d13TimerRegistryEv"
_CUDA: Final = 1
"""c10::DeviceType::CUDA."""
_NO_DEVICE: Final = -1
_MOST_TIMERS: Final = 16
"""Kinds of devices that have timers: two in every build there is."""


def forget_timers_of_cuda() -> None:
    """Let DDP's reducer find no timer for CUDA, as in a build without: it records events on a real device, which is not to be touched.

    The registry begins with a std::unordered_map by type of device (c10/util/Registry.h): where its buckets are, how many, the first
    node, how many nodes; a node is the next one's address, the key, and what makes the timer. Its key becomes none of any device.
    """
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        registry: Any = getattr(library, _REGISTRY)
    except (OSError, AttributeError):  # a build without distributed
        return
    registry.restype = ctypes.c_void_p
    _, _, node, count = (ctypes.c_uint64 * 4).from_address(registry())
    for _ in range(count if count <= _MOST_TIMERS else 0):
        key = ctypes.c_int8.from_address(node + 8)
        if key.value == _CUDA:
            key.value = _NO_DEVICE
        node = ctypes.c_uint64.from_address(node).value
        if not node:
            break


_NAMED_FOR_CUDA: Final = "torch.cuda."


def enable_types_of_cuda() -> int:
    """Let `torch.cuda.FloatTensor` and its like make tensors in a build without CUDA, and be a default type. Return how many there are.

    Such a type is a `PyTensorType` (torch/csrc/tensor/python_tensor.cpp): a `PyTypeObject`, then its dtype, its layout, and whether it is
    of CUDA, for which alone a build without refuses it.
    """
    enabled = 0
    for kind in getattr(torch, "_tensor_classes", ()):
        place = id(kind) + type.__sizeof__(kind)
        if f"{kind.__module__}.".startswith(_NAMED_FOR_CUDA) and tuple((ctypes.c_size_t * 2).from_address(place)) == (
            id(kind.dtype),
            id(kind.layout),
        ):
            ctypes.c_bool.from_address(place + 2 * ctypes.sizeof(ctypes.c_size_t)).value = False
            enabled += 1
    return enabled


# -- what is here of each, for `irscope doctor` ----------------------------------------------------------------------------


def _policies() -> str:
    """Return which class of FSDP2 sets a policy of types; the group first, as `fsdp_param_dtypes` asks."""
    package = "torch.distributed.fsdp._fully_shard"
    for module, name in (("_fsdp_param_group", "FSDPParamGroup"), ("_fsdp_param", "FSDPParam")):
        kind: Any = getattr(importlib.import_module(f"{package}.{module}"), name)
        if "mp_policy" in kind.__init__.__code__.co_names:
            return f"{name}.mp_policy"
    raise LookupError(f"torch {torch.__version__}: neither FSDPParamGroup nor FSDPParam has mp_policy")


def _votes() -> str:
    schedule: Any = importlib.import_module("torch.distributed.pipelining.schedules")._PipelineSchedule
    if not hasattr(importlib.import_module("torch.distributed.pipelining._utils"), "InferenceMode"):
        return "nobody asks"
    return _first(schedule, *_VOTES)


def _messages() -> str:
    stages: Any = importlib.import_module(_STAGES)
    name = _first(stages.PipelineStage, "_recv_meta", "_shape_inference")
    if name == "_recv_meta":
        for needed in ("_StageBackwardMeta", "extract_tensor_metas"):
            _first(stages, needed)
    return name


def _check_process_groups() -> str:
    options, made_by = fake_groups()
    made_by(0, 2, options())
    return "_create_internal" if hasattr(torch._C._distributed_c10d.FakeProcessGroup, "_create_internal") else "FakeProcessGroup"


def _timers() -> str:
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    return "c10d::TimerRegistry" if hasattr(library, _REGISTRY) else "none"


def _types() -> str:
    enabled = enable_types_of_cuda()
    if not enabled:
        raise LookupError(f"torch {torch.__version__}: no type of torch.cuda has its dtype and layout where they are looked for")
    return f"{enabled} types"


ENTRIES: Final[Mapping[str, Callable[[], str]]] = {
    "optimizers of Dynamo": lambda: dynamo_optimizers()[1],
    "contexts of fake tensors": lambda: _first(importlib.import_module("torch._subclasses.fake_tensor"), *_CONTEXTS),
    "modes of cuDNN": lambda: f"torch.backends.cudnn.rnn.{_first(importlib.import_module('torch.backends.cudnn.rnn'), 'get_cudnn_mode')}",
    "answers about Triton": lambda: f"torch.utils._triton.{_first(importlib.import_module('torch.utils._triton'), 'has_triton')}",
    "types of FSDP2": _policies,
    "dense tensors": lambda: _first(importlib.import_module("torch._prims_common"), *_DENSE),
    "votes of pipelines": _votes,
    "messages of stages": _messages,
    "groups of processes": _check_process_groups,
    "timers of DDP": _timers,
    "types of torch.cuda": _types,
}
"""Says of each entry what of it this torch has; an error says what it lacks."""
