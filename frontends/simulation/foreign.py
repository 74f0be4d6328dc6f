"""Kernels that a program brings along: custom operators whose kernels do not run here, extensions that are compiled for CUDA."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from irscope.frontends.simulation.kernels import UnknownKernel

if TYPE_CHECKING:
    from irscope.frontends.simulation.process import Process

_NO_DRIVER: Final = "active drivers"
"""What Triton says where there is no device to compile for."""


def install_foreign(process: Process) -> None:
    """Tell which operator or extension cannot run; with `allow_unknown` the operator's fake implementation says what it makes."""
    from torch._library.custom_ops import CustomOpDef

    kind: Any = CustomOpDef
    original = kind.register_kernel

    def register_kernel(op: Any, device_types: Any, function: Any = None, /) -> Any:
        if function is None:
            return lambda given: register_kernel(op, device_types, given)
        return original(op, device_types, _guarded(process, op, function))

    kind.register_kernel = register_kernel
    _extensions()


def _guarded(process: Process, op: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (ImportError, UnknownKernel) as error:
            reason = str(error)
        except RuntimeError as error:
            if _NO_DRIVER not in str(error):
                raise
            reason = str(error)
        fake = op._abstract_fn
        if fake is None or not process.kernels.allow_unknown:
            hint = "--allow-unknown-kernels counts what it makes" if fake is not None else "torch.library.register_fake tells what it makes"
            raise UnknownKernel(f"the kernel of operator {op._qualname} does not run here ({reason}); {hint}")
        process.kernels.tell_unknown(op._qualname)
        return fake(*args, **kwargs)

    return run


def _extensions() -> None:
    """Extensions are compiled at run time by these functions; those of the host alone work as ever."""
    from torch.utils import cpp_extension

    module: Any = cpp_extension

    def refused(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(name: str, *args: Any, **kwargs: Any) -> Any:
            sources = kwargs.get("sources", args[0] if args and original.__name__ == "load" else ())
            sources = [sources] if isinstance(sources, str) else list(sources or ())
            if kwargs.get("cuda_sources") or kwargs.get("with_cuda") or any(str(one).endswith((".cu", ".cuh")) for one in sources):
                raise UnknownKernel(f"extension {name} is compiled with CUDA kernels of its own, which do not run here")
            return original(name, *args, **kwargs)

        return load

    module.load, module.load_inline = refused(module.load), refused(module.load_inline)
