"""Stand-in for what Inductor imports of `triton`, without a compiler: names, configurations and kernels that are never run.

Inductor generates kernels as source for Triton and reads their configurations; what it allocates does not depend on what Triton makes of
them. The modules are there where no Triton is installed; an installed one keeps all but its driver.
"""

from __future__ import annotations

import ast
import functools
import importlib.abc
import importlib.machinery
import inspect
import sys
import textwrap
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from irscope.frontends.simulation.imports import ChangedImports

_PACKAGES: Final = (
    "triton", "triton.backends", "triton.compiler", "triton.language", "triton.language.extra", "triton.language.extra.cuda",
    "triton.runtime", "triton.tools",
)  # fmt: skip
_MODULES: Final = (
    *_PACKAGES,
    "triton.backends.compiler",
    "triton.compiler.compiler",
    "triton.compiler.errors",
    "triton.errors",
    "triton.knobs",
    "triton.language.core",
    "triton.language.extra.libdevice",
    "triton.language.math",
    "triton.language.standard",
    "triton.runtime.autotuner",
    "triton.runtime.cache",
    "triton.runtime.driver",
    "triton.runtime.errors",
    "triton.runtime.interpreter",
    "triton.runtime.jit",
    "triton.testing",
    "triton.tools.tensor_descriptor",
)
"""Modules of Triton 3.7 that torch imports, or looks into."""
VERSION: Final = "3.7.1"
"""The version that torch 2.13 asks for."""


class Anything:
    """A name of Triton's language: only kernels use it, and they are not run."""

    def __init__(self, name: str = "") -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # As a decorator it leaves the function alone.
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else self

    def __getitem__(self, key: Any) -> Any:
        return self

    def __repr__(self) -> str:
        return f"triton{self._name}"


class constexpr:
    """`triton.language.constexpr`."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, constexpr) else value


class dtype:
    """`triton.language.dtype`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"triton.language.{self.name}"


_TYPES: Final = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("int1", "float16", "bfloat16", "float32", "float64", "float8e4nv", "float8e4b8", "float8e4b15", "float8e5", "float8e5b16", "void"),
)


class tensor:
    """`triton.language.tensor`."""


class Config:
    """`triton.Config`: one way to run a kernel."""

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Any = None,
        ir_override: Any = None,
    ) -> None:
        self.kwargs, self.num_warps, self.num_stages, self.num_ctas = kwargs, num_warps, num_stages, num_ctas
        self.maxnreg, self.pre_hook, self.ir_override = maxnreg, pre_hook, ir_override

    def all_kwargs(self) -> dict[str, Any]:
        """Return all options by name."""
        own = {name: getattr(self, name) for name in ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")}
        return {**self.kwargs, **{name: value for name, value in own.items() if value is not None}}

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.all_kwargs().items())

    def __hash__(self) -> int:
        return hash((*self.all_kwargs().items(), self.pre_hook))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and (self.all_kwargs(), self.pre_hook) == (other.all_kwargs(), other.pre_hook)


class KernelInterface:
    """`triton.runtime.jit.KernelInterface`: `kernel[grid](...)`."""

    launched: Callable[[Any, Sequence[Any]], None] | None = None
    """Told of kernels that a program launches itself, with what they are given."""

    def warmup(self, *args: Any, **kwargs: Any) -> Any:
        return None

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        if KernelInterface.launched is not None:
            KernelInterface.launched(self, [*args, *kwargs.values()])

    def __getitem__(self, grid: Any) -> Any:
        return functools.partial(self.run, grid=grid, warmup=False)


class _Parameter:
    def __init__(self, number: int, parameter: inspect.Parameter) -> None:
        self.num, self._param, self.name = number, parameter, parameter.name
        self.annotation = "" if parameter.annotation is parameter.empty else str(parameter.annotation)
        self.default, self.has_default = parameter.default, parameter.default is not parameter.empty
        self.is_constexpr = parameter.annotation is constexpr or "constexpr" in self.annotation
        self.is_const = False
        self.do_not_specialize = self.do_not_specialize_on_alignment = False


class JITFunction(KernelInterface):
    """`triton.runtime.jit.JITFunction`: a kernel's source."""

    def __init__(self, fn: Callable[..., Any], *args: Any, **options: Any) -> None:
        self.fn: Any = fn
        self.__name__, self.__qualname__, self.__module__ = fn.__name__, fn.__qualname__, fn.__module__
        self.__doc__, self.__globals__ = fn.__doc__, fn.__globals__
        self.signature = inspect.signature(fn)
        self.params = [_Parameter(number, parameter) for number, parameter in enumerate(self.signature.parameters.values())]
        self.arg_names = [parameter.name for parameter in self.params]
        self.constexprs = [parameter.num for parameter in self.params if parameter.is_constexpr]
        self.used_global_vals: Any = {}
        self.do_not_specialize: Sequence[Any] = options.get("do_not_specialize") or ()
        self._hash_lock: Any = None
        self.debug, self.noinline = options.get("debug"), options.get("noinline")
        self.repr: Any = lambda _: fn.__name__

    @property
    def src(self) -> str:
        """The source from `def` on."""
        return _source(self.fn)

    @property
    def cache_key(self) -> str:
        """Return the text that distinguishes it from other kernels."""
        return self.__name__ + self.src

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")


class Autotuner(KernelInterface):
    """`triton.runtime.autotuner.Autotuner`: a kernel with several configurations."""

    def __init__(
        self, fn: Any, arg_names: Sequence[str] = (), configs: Sequence[Config] = (), key: Sequence[str] = (), **options: Any
    ) -> None:
        self.fn, self.arg_names, self.configs, self.keys = fn, list(arg_names), list(configs), list(key)
        self.reset_to_zero, self.restore_value = options.get("reset_to_zero") or [], options.get("restore_value") or []
        self.base_fn = getattr(fn, "fn", fn)


class Heuristics(KernelInterface):
    """`triton.runtime.autotuner.Heuristics`."""

    def __init__(self, fn: Any, arg_names: Sequence[str], values: Any) -> None:
        self.fn, self.arg_names, self.values = fn, list(arg_names), values


def jit(fn: Any = None, **options: Any) -> Any:
    """`triton.jit`."""
    return JITFunction(fn, **options) if fn is not None else lambda given: JITFunction(given, **options)


def autotune(configs: Sequence[Config], key: Sequence[str], **options: Any) -> Any:
    """`triton.autotune`."""
    return lambda fn: Autotuner(fn, fn.arg_names, configs, key, **options)


def heuristics(values: Any) -> Any:
    """`triton.heuristics`."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)


def cdiv(x: int, y: int) -> int:
    """`triton.cdiv`."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """`triton.next_power_of_2`."""
    return 1 << max(n - 1, 0).bit_length() if n > 0 else 0


class ConstexprFunction:
    """`triton.runtime.jit.ConstexprFunction`: a function of numbers that are known while a kernel is compiled."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn, self.__name__, self.__module__ = fn, fn.__name__, fn.__module__

    @property
    def src(self) -> str:
        """The source from `def` on."""
        return _source(self.fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def _source(fn: Callable[..., Any]) -> str:
    text = textwrap.dedent(inspect.getsource(fn))
    return text[max(text.find("def "), 0) :]


def written(kernel: JITFunction) -> set[str]:
    """Parameters through which a kernel writes, by its source: pointers that `store` and the atomic functions get, with what names stand
    for; where it hands a pointer to a function of its own, that too is taken to be written."""
    tree = ast.parse(kernel.src)
    stands_for = {name: {name} for name in kernel.arg_names}

    def behind(node: ast.AST) -> set[str]:
        names = {node.id for node in ast.walk(node) if isinstance(node, ast.Name)}
        return set().union(*(stands_for.get(name, set()) for name in names))

    found: set[str] = set()
    for _ in range(2):  # what a loop assigns at its end is used at its begin
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
                loads = isinstance(node.value, ast.Call) and _called(node.value) == "load"
                for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
                    if isinstance(target, ast.Name) and not loads:
                        stands_for.setdefault(target.id, set()).update(behind(node.value))
            elif isinstance(node, ast.Call):
                name = _called(node)
                if name == "store" or name.startswith("atomic_"):
                    found |= behind(node.args[0]) if node.args else set()
                elif isinstance(node.func, ast.Name) and isinstance(kernel.__globals__.get(name), JITFunction):
                    found |= set().union(*map(behind, node.args)) if node.args else set()
    return found


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


class OutOfResources(Exception):
    """Raised for a kernel that needs more than the device has."""


class CompilationError(Exception):
    """Raised for source that cannot be compiled."""


class PTXASError(Exception):
    """Raised where the assembler fails."""


class GPUTarget:
    """`triton.backends.compiler.GPUTarget`."""

    def __init__(self, backend: str, arch: int | str, warp_size: int) -> None:
        self.backend, self.arch, self.warp_size = backend, arch, warp_size


class ASTSource:
    """`triton.compiler.compiler.ASTSource`."""

    def __init__(self, fn: Any, signature: Any, constexprs: Any = None, attrs: Any = None) -> None:
        self.fn, self.signature, self.constants, self.attrs = fn, signature, constexprs, attrs


class TensorDescriptor:
    """`triton.tools.tensor_descriptor.TensorDescriptor`."""

    def __init__(self, base: Any, shape: Any, strides: Any, block_shape: Any, padding: str = "zero") -> None:
        self.base, self.shape, self.strides, self.block_shape, self.padding = base, shape, strides, block_shape, padding

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Any, padding: str = "zero") -> TensorDescriptor:
        """Return a descriptor of a whole tensor."""
        return TensorDescriptor(tensor, tensor.shape, tensor.stride(), block_shape, padding)


class _Driver:
    """The active driver: that of the simulated device."""

    capability = (9, 0)

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability[0] * 10 + self.capability[1], 32)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)


def _view(input: Any, *shape: Any, _semantic: Any = None) -> Any:
    """`triton.language.view`, as far as torch looks at its signature."""
    return input


def _no_compiler(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("Triton's compiler is not there on a simulated device")


_BACKEND: Final = SimpleNamespace(hash=lambda: "simulated", parse_options=lambda options: SimpleNamespace(extern_libs=()))


def _contents(capability: tuple[int, int]) -> dict[str, dict[str, Any]]:
    """Return the names by module."""
    _Driver.capability = capability
    driver = _Driver()
    active = SimpleNamespace(active=driver, set_active=lambda one: None)
    running = dict(autotune=autotune, Config=Config, heuristics=heuristics, JITFunction=JITFunction, KernelInterface=KernelInterface)
    running.update(OutOfResources=OutOfResources, driver=active)
    language: dict[str, Any] = {name: dtype(name) for name in _TYPES}
    language |= {"constexpr": constexpr, "dtype": dtype, "tensor": tensor, "view": _view}
    compiler = {"compile": _no_compiler, "CompiledKernel": type("CompiledKernel", (), {}), "ASTSource": ASTSource}
    compiler |= {"make_backend": lambda target: _BACKEND, "CompilationError": CompilationError, "triton_key": lambda: "simulated"}
    return {
        "triton": {
            **running,
            "__version__": VERSION,
            "jit": jit,
            "compile": _no_compiler,
            "cdiv": cdiv,
            "next_power_of_2": next_power_of_2,
            "CompilationError": CompilationError,
            "set_allocator": lambda allocator: None,
            "constexpr_function": ConstexprFunction,
        },
        "triton.backends": {
            "backends": {"nvidia": SimpleNamespace(driver=_Driver, compiler=None)},
            "BaseBackend": type("BaseBackend", (), {}),
        },
        "triton.backends.compiler": {"GPUTarget": GPUTarget, "BaseBackend": type("BaseBackend", (), {})},
        "triton.compiler": compiler,
        "triton.compiler.compiler": compiler,
        "triton.compiler.errors": {"CompilationError": CompilationError},
        "triton.errors": {"TritonError": Exception},
        "triton.knobs": {name: SimpleNamespace(dir="") for name in ("cache", "compilation", "runtime", "autotuning", "nvidia")},
        "triton.language": language,
        "triton.language.core": language,
        "triton.language.standard": {"_log2": lambda x: x},
        "triton.runtime": running,
        "triton.runtime.autotuner": {**running, "Autotuner": Autotuner, "Heuristics": Heuristics, "PTXASError": PTXASError},
        "triton.runtime.cache": {"triton_key": lambda: "simulated"},
        "triton.runtime.driver": {"driver": active, "active": driver, "set_active": active.set_active},
        "triton.runtime.errors": {"OutOfResources": OutOfResources, "PTXASError": PTXASError},
        "triton.runtime.interpreter": {"InterpretedFunction": type("InterpretedFunction", (), {})},
        "triton.runtime.jit": {
            "JITFunction": JITFunction,
            "KernelInterface": KernelInterface,
            "jit": jit,
            "ConstexprFunction": ConstexprFunction,
        },
        "triton.tools.tensor_descriptor": {"TensorDescriptor": TensorDescriptor},
    }


_OPEN: Final = ("triton.language", "triton.testing")
"""Modules in which every other name is one of the language."""


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the modules."""

    def __init__(self, capability: tuple[int, int]) -> None:
        self._contents = _contents(capability)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in _MODULES:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name in _PACKAGES)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name) if spec.name.startswith(_OPEN) else ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        for key, value in self._contents.get(name, {}).items():
            setattr(module, key, value)
        if name == "triton":
            for inner in _MODULES[1:]:
                __import__(inner)
        parent, _, last = name.rpartition(".")
        if parent and last != "driver" and parent in sys.modules:
            setattr(sys.modules[parent], last, module)


class _Module(ModuleType):
    """A module with every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(f".{name}")


# -- an installed Triton -----------------------------------------------------------------------------------------------


class Guide(ChangedImports):
    """Gives an installed Triton the simulated device's driver, and launches nothing of the kernels that a program writes itself.

    Its own driver asks for libcuda, which a machine without NVIDIA's driver lacks, and would run kernels where there is a device. What it
    has of languages, configurations and kernel objects is the installed one's. Nothing is imported before somebody asks for it.
    """

    def __init__(self, capability: tuple[int, int], launched: Callable[[Any, Sequence[Any]], None]) -> None:
        _Driver.capability = capability

        def run(kernel: Any, *args: Any, **kwargs: Any) -> None:
            launched(kernel, [*args, *kwargs.values()])

        super().__init__(
            {
                "triton.backends": _driven,
                "triton.runtime.jit": lambda module: setattr(module.JITFunction, "run", run),
                "triton.runtime.autotuner": lambda module: setattr(module.Autotuner, "run", run),
            }
        )


def _driven(module: Any) -> None:
    """Let NVIDIA's backend have the simulated device's driver; its compiler stays."""
    backend = module.backends.get("nvidia")
    if backend is not None:
        module.backends["nvidia"] = SimpleNamespace(compiler=backend.compiler, driver=_Driver)
