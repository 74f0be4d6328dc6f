"""Models of torchvision, timm and transformers: which package knows a name, how the model is made, the inputs that it takes."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import itertools
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from irscope.budget import FEWER_LAYERS, OverBudget, making, spend
from irscope.diagnostics import DiagnosticSink
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.frontends.files.folders import ADAPTER, Adapter, Tensors, own_code, read_adapter, read_folder
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES, torch_dtype
from irscope.frontends.zoo.names import PACKAGES, SCRIPT, Name, bare_word, is_name, missing, parse_name
from irscope.frontends.zoo.recipes import DEFAULT_SIZES, Recipe, Wanted, weights_dtype
from irscope.ir.dtypes import DType
from irscope.ir.program import WEIGHTS, Assumed
from irscope.weights.source import Forbidden, ModelFolder

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from irscope.frontends.generation.quantised import Layers


def compare_weights(module: Any, tensors: Tensors, sink: DiagnosticSink) -> None:
    """Say what of a checkpoint is missing, left over, or has other sizes than the module that the configuration makes."""
    hint = "weights and configuration may be of different models"
    for message in _disagreements(module, tensors):
        sink.warn("IRS167", message, hint=hint, about="weights")


def _disagreements(module: Any, tensors: Tensors) -> Iterator[str]:
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict(keep_vars=True).items()}
    owners: dict[int, set[str]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        owners.setdefault(id(tensor), set()).add(name)
    stored = {name: shape for held in tensors.files.values() for name, (_, shape) in held.items()}
    places = _places_in_module(module, list(stored), wanted)
    if places is None:
        return
    reached = {place for place, _ in places.values()}
    # A tensor that has two names is stored under one of them.
    missing = [name for name in wanted if not any(one in reached for one in next(held for held in owners.values() if name in held))]
    lacking = [name for name in missing if not _is_one_of(module, "_keys_to_ignore_on_load_missing", name)]
    if lacking:
        yield f"the folder lacks {_tensors_text(lacking)} of the model that its configuration describes"
    left = [name for name, (place, _) in places.items() if place not in wanted]
    left = [name for name in left if not _is_one_of(module, "_keys_to_ignore_on_load_unexpected", places[name][0])]
    if left:
        yield f"the folder holds {_tensors_text(left)} that the model of its configuration does not have"
    for name, (place, is_whole) in places.items():
        if is_whole and place in wanted and stored[name] != wanted[place]:
            sizes = ("x".join(map(str, one)) or "a number" for one in (stored[name], wanted[place]))
            yield "{!r} is {} in the folder and {} by its configuration".format(name[:80], *sizes)
            return


def _tensors_text(names: list[str]) -> str:
    shown = repr(sorted(names)[0][:80])
    return f"the tensor {shown}" if len(names) == 1 else f"{len(names):,} tensors, such as {shown},"


def _is_one_of(module: Any, table: str, name: str) -> bool:
    import re

    return any(re.search(pattern, name) for pattern in getattr(module, table, None) or ())


def _places_in_module(module: Any, names: list[str], wanted: dict[str, tuple[int, ...]]) -> dict[str, tuple[str, bool]] | None:
    """Return the module's name of each stored tensor, and whether that is all of it; None where the package's rules are not to be had.

    Newer versions of transformers store some weights otherwise than they hold them, experts for one, and say how.
    """
    prefix = str(getattr(module, "base_model_prefix", "") or "") or None
    rename: Any = None
    renamings: list[Any] = []
    converters: list[Any] = []
    with suppress(ImportError):
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, rename_source_key

        rename = rename_source_key
        for one in get_model_conversion_mapping(module):
            (converters if isinstance(one, WeightConverter) else renamings).append(one)
    if rename is None:
        plain = all(name in wanted for name in names)
        return {name: (name, True) for name in names} if plain else None
    places: dict[str, tuple[str, bool]] = {}
    for name in names:
        place, pattern = rename(name, renamings, converters, prefix, wanted)
        if pattern is not None and place not in wanted:
            return None  # one stored tensor becomes several
        places[name] = (place, pattern is None)
    return places


def stored_dtype(tensors: Tensors | None) -> DType | None:
    """Return the element type that `from_pretrained` takes where a configuration says none: that of the first floating tensor."""
    floats = (dtype for held in (tensors.files.values() if tensors is not None else ()) for dtype, _ in held.values() if dtype.is_float)
    return next((dtype for dtype in floats if dtype in (DType.F16, DType.BF16, DType.F32, DType.F64)), None)


_NEAR: Final = 4


def is_installed(package: str) -> bool:
    """Return whether a package and torch are there."""
    return all(importlib.util.find_spec(one) is not None for one in ("torch", package))


def names_of(package: str) -> list[str]:
    """Return every model that a package offers, in its own order."""
    _need(package)
    return _lister(package)()


def find_recipe(name: Name) -> Recipe:
    """Return how the model is made; UsageError with near matches where the package does not have it."""
    _need(name.package)
    options: dict[str, Any] = dict(name.options)
    dtype = weights_dtype(options.pop("dtype", None), name.text)
    try:
        if name.package == "transformers":
            recipe = transformers_recipe(name.model, options, dtype, trusted=name.trusted)
        else:
            recipe = _maker(name.package)(name.model, options, dtype)
    except (KeyError, RuntimeError) as error:
        known = names_of(name.package)
        if name.model in known:
            raise LoadError(f"{name.package} cannot make it: {error}", code="IRS197", where=name.text) from error
        raise _unknown_model(name, known) from None
    except ValueError as error:
        known = names_of(name.package)
        raise (_refused(name, error) if name.model in known else _unknown_model(name, known)) from None
    if name.package == "timm" and name.model not in names_of("timm"):
        raise _unknown_model(name, names_of("timm"))
    return recipe


def may_run(adapter: Adapter | None, *, trusted: bool) -> bool:
    """Return whether code in a model's folder may run: the user named that folder, an adapter's settings did not."""
    return trusted and (adapter is None or adapter.base_from != ADAPTER)


def with_base(name: Name, base: str = "") -> tuple[Name, Adapter | None]:
    """Return the model that a name stands for; where it is an adapter's folder, the model that this goes on top of, and the adapter."""
    folder = Path(name.model)
    adapter = read_adapter(folder, base) if name.package == "transformers" and folder.is_dir() else None
    if adapter is None:
        return name, None
    if os.path.isdir(adapter.base):
        return replace(name, model=adapter.base), adapter
    name_node = parse_name(adapter.base) if is_name(adapter.base) else None
    if name_node is None or name_node.package != "transformers":
        hint = "--base names a folder of transformers, or transformers:NAME{settings}"
        raise LoadError(f"its base {adapter.base[:120]!r} is not one of these", code="IRS168", where=name.text, hint=hint)
    return replace(name_node, text=name.text, options=(*name_node.options, *name.options)), adapter


def _refused(name: Name, error: Exception) -> LoadError:
    return LoadError(f"{name.package} cannot make it: {error}", code="IRS197", where=name.text)


def _unknown_model(name: Name, known: list[str]) -> UsageError:
    near = difflib.get_close_matches(name.model, known, n=_NEAR, cutoff=0.5)
    near += [one for one in known if name.model.lower() in one.lower() and one not in near][: _NEAR - len(near)]
    said = f"near: {', '.join(near)}" if near else f"`irscope zoo {name.package}` lists its {len(known)} models"
    return UsageError(f"{name.package} has no model {name.model!r}", code="IRS196", where=name.text, hint=said)


def check_installed(text: str) -> None:
    """Raise UsageError, with what to install, where the package of a name is missing."""
    package = parse_name(text).package
    _need("torch" if package == SCRIPT else package)


def not_found(text: str) -> IrscopeError:
    """Return what is said of a text that is neither a file nor a name; for a bare word, the packages that have a model of that name."""
    word = bare_word(text)
    if word is None:
        return missing(text)
    name, options = word
    installed = [package for package in PACKAGES if is_installed(package)]
    known = {package: names_of(package) for package in installed}
    there = [f"{package}:{name}{options}" for package in installed if name in known[package] or _is_class(package, name)]
    if there:
        meant = f"{', '.join(there[:-1])} or {there[-1]}?" if len(there) > 1 else f"{there[0]}?"
        return UsageError("there is no such file", code="IRS679", where=text, hint=f"did you mean {meant}")
    near = [f"{package}:{match}" for package in installed for match in difflib.get_close_matches(name, known[package], n=2, cutoff=0.7)]
    others = [package for package in PACKAGES if package not in installed]
    said = f"near: {', '.join(near)}" if near else f"models by name: {', '.join(f'{package}:{name}' for package in others or PACKAGES)}"
    wanted = ["torch", *others] if importlib.util.find_spec("torch") is None else others
    lacking = f"; not installed: pip install {' '.join(wanted)}" if others else ""
    return UsageError("there is no such file, nor an installed model of that name", code="IRS679", where=text, hint=f"{said}{lacking}")


def _is_class(package: str, name: str) -> bool:
    return package == "transformers" and name[:1].isupper() and hasattr(load_transformers(), name)


def _need(package: str) -> None:
    missing = [one for one in dict.fromkeys(("torch", package)) if importlib.util.find_spec(one) is None]
    if missing:
        others = [one for one in PACKAGES if is_installed(one)]
        there = f"; installed: {', '.join(others)}" if others else ""
        lacking = f"{' and '.join(missing)} {'are' if missing[1:] else 'is'} not installed"
        raise UsageError(lacking, code="IRS195", hint=f"pip install {' '.join(missing)}{there}")


def _lister(package: str) -> Callable[[], list[str]]:
    found: dict[str, Callable[[], list[str]]] = {"transformers": transformers_names, "timm": timm_names, "torchvision": torchvision_names}
    return found[package]


def _maker(package: str) -> Callable[[str, dict[str, Any], DType | None], Recipe]:
    found: dict[str, Callable[[str, dict[str, Any], DType | None], Recipe]] = {
        "timm": timm_recipe,
        "torchvision": torchvision_recipe,
    }
    return found[package]


_IMAGE_SIZE: Final = 224
_SAMPLES: Final = 16_000
_FRAMES: Final = 512
_VOCABULARY: Final = 1000
_BOX: Final = 4
_BOXES_BELOW: Final = 100
# Which of a kind's classes is meant: the first table that knows the kind.
_TABLES: Final = (
    "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES",
    "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)


_Shape: TypeAlias = "tuple[tuple[int | str, ...], bool]"
"""Sizes of an input after its batch, and whether they are usual ones that the configuration does not say."""


def load_transformers() -> Any:
    """Return the package, told not to use the network."""
    # It imports torchvision wherever it finds it.
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    if importlib.util.find_spec("torchvision") is not None:
        load_torchvision()
    try:
        package = importlib.import_module("transformers")
    except ImportError as error:
        raise LoadError(f"transformers cannot be imported: {error}", code="IRS195", hint="pip install transformers") from error
    package.logging.set_verbosity_error()
    return package


def transformers_names() -> list[str]:
    """Kinds of models that have a class and a configuration."""
    load_transformers()
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    return sorted({kind for table in _TABLES for kind in getattr(auto, table, {})})


def transformers_recipe(model: str, options: dict[str, Any], dtype: DType | None, *, trusted: bool = False) -> Recipe:
    """Return a kind of model, a class such as BertModel, or a local config.json; its own element type unless another is wanted."""
    package = load_transformers()
    is_cache_said = "use_cache" in options
    cache = bool(options.pop("use_cache", False))
    attention = options.pop("attn_implementation", None)
    config, cls = configured_class(package, model, options, trusted=trusted)
    own = own_dtype(config)
    settings = _quantisation_of(config)
    read = os.path.isdir(model) and (own is None or bool(settings))
    tensors = read_folder(Path(model), DiagnosticSink())[1] if read else None
    stored = stored_dtype(tensors) if own is None and tensors is not None else None
    chosen = dtype or own or stored or DType.F32
    layers = _layers_of(settings, tensors, chosen, model)
    assumed = list(_differences(config, chosen, own, stored, is_file=Path(model).exists(), is_said=dtype is not None))
    if layers is not None:
        assumed = [layers.assumed, *(assumption for assumption in assumed if assumption.what != WEIGHTS)]
    if hasattr(config, "use_pretrained_backbone"):
        config.use_pretrained_backbone = False
    if attention is not None:
        config._attn_implementation = attention

    def make() -> nn.Module:
        with counted_modules(model):
            module = _model_maker(cls, config, chosen)
        if layers is not None:
            layers.put_into(module)
        return module.eval()

    parameters = inspect.signature(cls.forward).parameters
    for one in (config, getattr(config, "text_config", None), getattr(config, "decoder", None)):
        if one is not None and hasattr(one, "use_cache"):
            if bool(one.use_cache) and not cache and not is_cache_said and not any(each.what == "use_cache" for each in assumed):
                assumed.append(Assumed("use_cache", "false", "the configuration says true", is_guess=False))
            one.use_cache = cache
    texts = (config, getattr(config, "text_config", None))
    found = [_first_known(text, "max_position_embeddings", "n_positions", "max_target_positions") for text in texts]
    longest = min((one for one in found if isinstance(one, int) and one > 0), default=DEFAULT_SIZES["seq"])
    sizes = {"seq": min(DEFAULT_SIZES["seq"], longest)}
    return Recipe(
        make,
        lambda module: list(inputs_taken(module, config, parameters)),
        sizes,
        dtype or own or stored,
        is_cast=False,
        assumed=tuple(assumed),
    )


def _quantisation_of(config: Any) -> dict[str, Any]:
    """Return the `quantization_config` of a configuration, or of the part of it about text."""
    parts: list[Any] = [config, getattr(config, "text_config", None)]
    quantization_config: Any = next((one.quantization_config for one in parts if getattr(one, "quantization_config", None) is not None), {})
    return dict(quantization_config if isinstance(quantization_config, dict) else quantization_config.to_dict())


def _layers_of(settings: Mapping[str, Any], tensors: Tensors | None, dtype: DType, model: str) -> Layers | None:
    """Return what stands for linear layers whose weights are quantised; None where they are plain, or nobody knows how they run."""
    wanted = torch_dtype(dtype)
    if wanted is None or not (settings or (tensors is not None and tensors.packed.weights)):
        return None
    from irscope.frontends.generation.quantised import quantised_layers

    return quantised_layers(settings, tensors, wanted, model)


_MOST_MODULES: Final = 130_000
"""Modules of a model that a configuration may ask for: Kimi K2 has 120,000 where each expert is one."""


@contextmanager
def counted_modules(model: str) -> Iterator[None]:
    """Refuse a configuration that asks for more modules than any model has, while they are made."""
    from torch.nn.modules.module import register_module_module_registration_hook

    count = itertools.count()

    def registered(*_: object) -> None:
        spend(100, "making its modules")
        if next(count) >= _MOST_MODULES:
            message = f"its configuration asks for more than {_MOST_MODULES:,} modules"
            raise OverBudget(message, where=model, hint=FEWER_LAYERS)

    hook = register_module_module_registration_hook(registered)  # type: ignore[no-untyped-call, unused-ignore]  # torch's own
    try:
        with making(model):
            yield
    finally:
        hook.remove()


def _model_maker(cls: Any, config: Any, dtype: DType) -> nn.Module:
    """Return the module as `from_pretrained` leaves it: made in an element type, but for the parts that are always wider."""
    wanted = torch_dtype(dtype)
    module: Any = cls._from_config(config, dtype=wanted) if hasattr(cls, "_from_config") else cls(config).to(wanted)
    plan: dict[str, Any] = module._get_dtype_plan(wanted) if hasattr(module, "_get_dtype_plan") else {}
    patterns = {re.compile(name.replace("*", ".*")): kept for name, kept in plan.items()}
    stored = module.state_dict(keep_vars=True) if plan else {}
    for name, tensor in stored.items():
        kept = next((kept for pattern, kept in patterns.items() if pattern.search(name)), None)
        if kept is not None and tensor.is_floating_point():
            tensor.data = tensor.data.to(kept)
    return module  # type: ignore[no-any-return]  # classes of the package have no types


def own_dtype(config: Any) -> DType | None:
    """Return the element type that a configuration, or the part of it about text, says."""
    for one in (config, getattr(config, "text_config", None)):
        dtype = NAMED_DTYPES.get(str(getattr(one, "dtype", None) or "").removeprefix("torch."))
        if dtype is not None and dtype in (DType.F16, DType.BF16, DType.F32, DType.F64):
            return dtype
    return None


def _differences(config: Any, chosen: DType, own: DType | None, stored: DType | None, *, is_file: bool, is_said: bool) -> Iterator[Assumed]:
    """Yield what is analysed, where it is not what the configuration says, or says nothing; of a folder, also where it is."""
    if own is not None and own is not chosen:
        yield Assumed("dtype", chosen.text, f"the configuration says {own.text}", is_guess=False)
    elif own is not None and is_file and not is_said:
        yield Assumed("dtype", chosen.text, "the configuration", is_guess=False)
    elif stored is chosen and not is_said:
        yield Assumed("dtype", chosen.text, "the weights; the configuration does not say", is_guess=False)
    elif own is None and is_file and chosen is DType.F32:
        yield Assumed("dtype", chosen.text, "default; the configuration does not say", is_guess=False)
    settings = _quantisation_of(config)
    if settings:
        method = getattr(settings.get("quant_method"), "value", settings.get("quant_method")) or "some method"
        why = f"the configuration says that weights are quantised by {method}, which is not analysed"
        yield Assumed(WEIGHTS, f"plain {chosen.text}", why)


def configured_class(package: Any, model: str, options: dict[str, Any], *, trusted: bool = False) -> tuple[Any, Any]:
    """Return the configuration and the class of a kind of model, of a class by name, or of a local folder."""
    from torch import nn

    path = Path(model)
    if path.exists():
        return _from_file(package, path, options, trusted=trusted)
    if model in transformers_names():
        return _configured(package.CONFIG_MAPPING[model], options, model), _class_of(package, model)
    cls: Any = getattr(package, model, None)
    config_class = getattr(cls, "config_class", None)
    if inspect.isclass(cls) and config_class is not None and issubclass(cls, nn.Module):
        return _configured(config_class, options, model), cls
    raise KeyError(model)


_PUBLISHED: Final = ("rope_scaling", "rope_theta", "rope_parameters", "torch_dtype", "quantization_config", "auto_map", "_name_or_path")
"""Settings of published files that every configuration takes, though its class does not list them."""


def _configured(config_class: Any, options: dict[str, Any], model: str) -> Any:
    """Return the default configuration with some settings changed; settings it does not have are refused."""
    try:
        plain = config_class()
        unknown = [key for key in options if not hasattr(plain, key) and key not in _PUBLISHED]
        if not unknown:
            return config_class(**options)
    except Exception as error:  # its fields have checks of their own, which raise what they like
        said = " ".join(str(error).split())[:200]
        raise UsageError(f"its configuration refuses that: {said}", code="IRS672", where=f"transformers:{model}") from error
    settings = sorted(key for key in plain.to_dict() if not key.startswith("_"))
    near = difflib.get_close_matches(unknown[0], settings, n=4, cutoff=0.5) or settings[:12]
    message = f"{config_class.__name__} has no setting {unknown[0]!r}"
    raise UsageError(message, code="IRS672", where=f"transformers:{model}", hint=f"near: {', '.join(near)}")


def _from_file(package: Any, path: Path, options: dict[str, Any], *, trusted: bool) -> tuple[Any, Any]:
    folder = ModelFolder(path)
    try:
        for file in sorted(path.glob("*.json")):  # whichever of them the package opens
            folder.find(file.name)
    except Forbidden as error:
        raise LoadError(f"{file.name!r} {error}", code="IRS197", where=str(path), hint=error.hint) from None
    own = own_code(path) if path.is_dir() else {}
    said = read_folder(path, DiagnosticSink(), weights=False)[0] if path.is_dir() else {}
    kind, classes = said.get("model_type"), said.get("architectures")
    is_known = isinstance(kind, str) and kind in package.CONFIG_MAPPING
    if own and (trusted or not (is_known and any(isinstance(name, str) and hasattr(package, name) for name in classes or []))):
        if not trusted:
            message = f"its model is made by code of its own ({_code_files(own)}), which is not run"
            raise LoadError(message, code="IRS175", where=str(path), hint=_trusting(path))
        return _from_own_code(package, path, own, options)
    if isinstance(kind, str) and not is_known and said:
        near = difflib.get_close_matches(kind, transformers_names(), n=2, cutoff=0.7)
        meant = f"near: {', '.join(near)}; " if near else ""
        message = f"this version of transformers does not know the architecture {kind[:60]!r}"
        hint = f"{meant}a newer one may; a file of weights in the folder can be named by itself"
        raise LoadError(message, code="IRS197", where=str(path), hint=hint)
    try:
        config = package.AutoConfig.from_pretrained(str(path), local_files_only=True, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError) as error:
        message = f"it holds no configuration: {' '.join(str(error).split())[:200]}"
        raise LoadError(message, code="IRS197", where=str(path), hint="name a folder with a config.json") from error
    except Exception as error:  # a value of any type under any key may be there
        message = f"transformers cannot read its configuration: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise LoadError(message, code="IRS197", where=str(path)) from error
    for part in (config, *(getattr(config, name, None) for name in getattr(config, "sub_configs", ()))):
        if "/" in str(getattr(part, "_attn_implementation", "")):  # kernels of a hub, which would be fetched and run
            part._attn_implementation = None
    named = config.architectures
    for name in named if isinstance(named, list | tuple) else ():
        cls = getattr(package, name, None) if isinstance(name, str) else None
        if inspect.isclass(cls) and issubclass(cls, package.PreTrainedModel):
            return config, cls
    return config, _class_of(package, config.model_type)


def warn_of_code(folder: Path, made: type, sink: DiagnosticSink) -> None:
    """Say that code beside a configuration is passed over, where transformers itself has the model that was made."""
    own = own_code(folder)
    if own and made.__module__.startswith("transformers."):
        message = f"code of its own ({_code_files(own)}) is not run: this is {made.__name__} as transformers has it"
        sink.warn("IRS175", message, hint=_trusting(folder))


def _code_files(own: Mapping[str, str]) -> str:
    places = {one.rpartition("--") for one in own.values()}
    return ", ".join(sorted({f"{name.partition('.')[0]}.py{other and f' of {other}'}" for other, _, name in places}))[:120]


def _trusting(folder: Path) -> str:
    return f"read it, then `irscope run --trust-remote-code {shlex.quote(str(folder))}` runs it"


_OWN_CLASSES: Final = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForImageTextToText", "AutoModelForMaskedLM", "AutoModel")
"""Which of the classes that a folder's own code has is meant, the first that is there."""


def _from_own_code(package: Any, path: Path, own: Mapping[str, str], options: dict[str, Any]) -> tuple[Any, Any]:
    """Build the model by code in the folder, which runs: the user said that it may, of no other repository that the folder names."""
    others = ", ".join(sorted({one.partition("--")[0] for one in own.values() if "--" in one}))
    if others:
        message = f"its model is made by code of other repositories ({others[:120]}), which is not run"
        raise LoadError(message, code="IRS175", where=str(path), hint="name a folder that has the code in it")
    modules = importlib.import_module("transformers.dynamic_module_utils")
    name = next((own[one] for one in _OWN_CLASSES if one in own), "")
    try:
        config = package.AutoConfig.from_pretrained(str(path), local_files_only=True, trust_remote_code=True, **options)
        cls = modules.get_class_from_dynamic_module(name, str(path), local_files_only=True) if name else None
    except Exception as error:  # whatever the folder's code raises
        message = f"its own code fails: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise LoadError(message, code="IRS197", where=str(path)) from error
    return config, cls or _class_of(package, config.model_type)


def _class_of(package: Any, kind: str) -> Any:
    """Return the class that a kind of model usually means."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    for table in _TABLES:
        found = getattr(auto, table, {}).get(kind)
        names = found if isinstance(found, tuple | list) else (found,)
        for name in names:
            if name is not None and hasattr(package, name):
                return getattr(package, name)
    raise UsageError(f"{kind} has no class for a model", code="IRS197", where=f"transformers:{kind}", hint="name a class instead")


def inputs_taken(module: Any, config: Any, parameters: Any) -> Iterator[Wanted]:
    """Yield what the model is called with, by the names that it uses for its arguments."""
    main = str(getattr(module, "main_input_name", "") or next(name for name in parameters if name != "self"))
    names = [main]
    has_text = getattr(config, "text_config", None) is not None
    if main == "input_ids" and has_text and getattr(config, "vision_config", None) is not None and not module.can_generate():
        names.append("pixel_values")
    if "bbox" in parameters:
        names.append("bbox")
    if main == "input_ids" and "attention_mask" in parameters:
        names.append("attention_mask")
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters:
        names.append("decoder_input_ids")
    reads_text = main == "inputs" and type(module).__name__.endswith("LM")
    for name in names:
        yield replace(_input("input_ids", config), name=name) if reads_text else _input(name, config)


def _input(name: str, config: Any) -> Wanted:
    text = getattr(config, "text_config", None) or config
    if name.endswith("input_ids"):
        vocabulary = _first_known(config, "vocab_size") or _first_known(text, "vocab_size") or _VOCABULARY
        return Wanted(name, ("batch", "seq"), DType.I64, "ids", int(vocabulary), keyword=True)
    if name.endswith("attention_mask"):
        return Wanted(name, ("batch", "seq"), DType.I64, "ones", keyword=True)
    if name == "bbox":
        return Wanted(name, ("batch", "seq", _BOX), DType.I64, "ones", _BOXES_BELOW, keyword=True)
    shape = _SHAPES.get(name)
    if shape is None:
        raise UsageError(
            f"its main input is {name!r}, for which irscope knows no shape",
            code="IRS198",
            hint=f"irscope.capture(module, ...) from Python, or a class whose input is one of input_ids, {', '.join(_SHAPES)}",
        )
    sizes, is_usual = shape(config)
    return Wanted(name, ("batch", *sizes), keyword=True, is_usual=is_usual)


def _image(config: Any) -> _Shape:
    vision = getattr(config, "vision_config", None) or config
    said = _first_known(vision, "image_size", "input_size")
    size = said or _IMAGE_SIZE
    if isinstance(size, dict):
        size = [size.get("height", _IMAGE_SIZE), size.get("width", _IMAGE_SIZE)]
    height, width = size if isinstance(size, list | tuple) else (size, size)
    channels = _first_known(vision, "num_channels", "in_channels") or 3
    frames = _first_known(vision, "num_frames")
    return (*((frames,) if isinstance(frames, int) else ()), int(channels), int(height), int(width)), not said


def _features(config: Any) -> _Shape:
    per_frame = _first_known(config, "input_feat_per_channel")
    if per_frame is not None:
        return (_FRAMES, int(per_frame)), True
    bins = _first_known(config, "num_mel_bins", "feature_size") or 80
    longest = _first_known(config, "max_source_positions")
    return ((int(bins), 2 * int(longest)), False) if longest is not None else ((_FRAMES, int(bins)), True)


def _sound(config: Any) -> _Shape:
    bins, length = _first_known(config, "num_mel_bins"), _first_known(config, "max_length")
    return ((int(length), int(bins)), False) if bins is not None and length is not None else ((_SAMPLES,), True)


def _vectors(config: Any) -> _Shape:
    return ("seq", int(_first_known(config, "d_model", "hidden_size") or _VOCABULARY)), False


_SHAPES: Final = {"pixel_values": _image, "input_features": _features, "input_values": _sound, "inputs": _vectors}


def _first_known(config: Any, *names: str) -> Any:
    """Return the first of these settings that the configuration has."""
    return next((found for name in names if (found := getattr(config, name, None)) is not None), None)


_USUAL_SIZE: Final = 224
_SEGMENTATION_SIZE: Final = 520
_DETECTION_SIZE: Final = (800, 800)
_FLOW_SIZE: Final = (520, 960)
_FRAMES_OF_VIDEO: Final = 16
_COLOURS: Final = 3


def torchvision_names() -> list[str]:
    """Return what torchvision lists."""
    return list(load_torchvision().models.list_models())


def torchvision_recipe(model: str, options: dict[str, Any], dtype: DType | None) -> Recipe:
    """Return a model of torchvision with random weights."""
    models = load_torchvision().models
    builder = models.get_model_builder(model)
    if "weights_backbone" in inspect.signature(builder).parameters:
        options.setdefault("weights_backbone", None)
    if "init_weights" in inspect.signature(builder).parameters or model in ("googlenet", "inception_v3"):
        options.setdefault("init_weights", False)
    variants = list(models.get_model_weights(model))
    preset = type(variants[0].transforms()).__name__ if variants else "ImageClassification"
    default = getattr(models.get_model_weights(model), "DEFAULT", None)
    transforms = default.transforms() if default is not None else None

    def inputs(module: nn.Module) -> Sequence[Wanted]:
        if preset == "ObjectDetection":
            return [Wanted("images", (_COLOURS, *_DETECTION_SIZE), as_list=True, is_usual=True)]
        if preset == "OpticalFlow":
            return [Wanted(name, ("batch", _COLOURS, *_FLOW_SIZE), is_usual=True) for name in ("image1", "image2")]
        if preset == "SemanticSegmentation":
            return [Wanted(first_input(module), ("batch", _COLOURS, _SEGMENTATION_SIZE, _SEGMENTATION_SIZE), is_usual=True)]
        size = getattr(transforms, "crop_size", [_USUAL_SIZE])
        height, width = (size * 2)[:2]
        own = getattr(module, "image_size", None)
        if isinstance(own, int):
            height = width = own
        if preset == "VideoClassification":
            frames = max(_FRAMES_OF_VIDEO, default.meta.get("min_temporal_size", 0)) if default is not None else _FRAMES_OF_VIDEO
            return [Wanted(first_input(module), ("batch", _COLOURS, frames, height, width), is_usual=True)]
        return [Wanted(first_input(module), ("batch", _COLOURS, height, width), is_usual=not hasattr(transforms, "crop_size"))]

    return Recipe(lambda: models.get_model(model, weights=None, **options).eval(), inputs, dtype=dtype)


def first_input(module: nn.Module) -> str:
    """Return what a module calls its first argument."""
    return next(iter(inspect.signature(module.forward).parameters), "x")


def timm_names() -> list[str]:
    """Return what timm lists."""
    return list(_timm().list_models())


def timm_recipe(model: str, options: dict[str, Any], dtype: DType | None) -> Recipe:
    """Return a model of timm with random weights."""
    timm = _timm()

    def inputs(module: nn.Module) -> Sequence[Wanted]:
        settings = getattr(module, "pretrained_cfg", None) or {}
        said = options.get("input_size") or settings.get("input_size")
        size = tuple(said or (_COLOURS, _USUAL_SIZE, _USUAL_SIZE))
        own = options.get("img_size")
        if own is not None:
            size = (size[0], *(own if isinstance(own, list | tuple) else (own, own)))
        if "in_chans" in options:
            size = (options["in_chans"], *size[1:])
        return [Wanted(first_input(module), ("batch", *size), is_usual=not said and own is None)]

    return Recipe(lambda: timm.create_model(model, pretrained=False, **options).eval(), inputs, dtype=dtype)


def _timm() -> Any:
    import importlib

    load_torchvision()
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        raise LoadError(f"timm cannot be imported: {error}", code="IRS195", hint="pip install timm") from error


# -- torchvision beside a torch for which its compiled operators were not built ----------------------------------------
# The wheel on PyPI needs CUDA's libraries. Its Python needs only that the operators exist: they are declared, with the shapes of their
# results, and never run.


_ROIS: Final = "Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_POOL: Final = _ROIS.replace("rois,", "rois, Tensor {chosen},")
_SIZES: Final = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_DEFORMED: Final = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, "
    "SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask"
)
_OPERATORS: Final = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": f"(Tensor input, {_ROIS}, int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward": f"(Tensor grad, {_ROIS}, {_SIZES}, int sampling_ratio, bool aligned) -> Tensor",
    "qroi_align": f"(Tensor input, {_ROIS}, int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool": f"(Tensor input, {_ROIS}) -> (Tensor, Tensor)",
    "_roi_pool_backward": f"(Tensor grad, {_POOL.format(chosen='argmax')}, {_SIZES}) -> Tensor",
    "ps_roi_align": f"(Tensor input, {_ROIS}, int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward": f"(Tensor grad, {_POOL.format(chosen='channel_mapping')}, int sampling_ratio, {_SIZES}) -> Tensor",
    "ps_roi_pool": f"(Tensor input, {_ROIS}) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward": f"(Tensor grad, {_POOL.format(chosen='channel_mapping')}, {_SIZES}) -> Tensor",
    "box_iou_rotated": "(Tensor boxes1, Tensor boxes2) -> Tensor",
    "deform_conv2d": f"({_DEFORMED}) -> Tensor",
    "_deform_conv2d_backward": f"(Tensor grad, {_DEFORMED}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
}
_kept: list[torch.library.Library] = []
"""A library lives as long as what it declares."""


def load_torchvision() -> ModuleType:
    """Return the torchvision package; ImportError where it is not installed."""
    if "torchvision" in sys.modules:
        return sys.modules["torchvision"]
    try:
        return importlib.import_module("torchvision")
    except (RuntimeError, AttributeError):
        # What an operator's absence breaks; the package is imported anew below.
        for name in [name for name in sys.modules if name == "torchvision" or name.startswith("torchvision.")]:
            del sys.modules[name]
    return _with_declared_operators()


def declared() -> bool:
    """Return whether operators had to be declared, so that they cannot run."""
    return bool(_kept)


def declare_operators() -> torch.library.Library:
    """Let torchvision's operators exist, as far as its Python asks for them; none of them can run."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in _OPERATORS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(name + schema)
    _kept.append(library)
    return library


def _with_declared_operators() -> ModuleType:
    import torch

    library = declare_operators()
    package = importlib.import_module("torchvision")
    torch.library.register_fake("torchvision::roi_align", _roi_align, lib=library, allow_override=True)
    for name in ("boxes", "roi_align"):
        module = sys.modules.get(f"torchvision.ops.{name}")
        if module is not None:
            module._assert_has_ops = _do_nothing  # type: ignore[attr-defined]  # torchvision's own
            module._has_ops = _yes  # type: ignore[attr-defined]  # torchvision's own
    return package


# TorchScript compiles these two, which it could not do with lambdas.
def _do_nothing() -> None:
    pass


def _yes() -> bool:
    return True


def _roi_align(x: Tensor, rois: Tensor, scale: float, height: int, width: int, sampling: int, aligned: bool) -> Tensor:
    return x.new_empty((rois.size(0), x.size(1), height, width))
