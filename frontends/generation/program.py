"""The program that `irscope generate` simulates: load a language model, and let it generate."""

from __future__ import annotations

import inspect
import json
import math
import re
import struct
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import torch

from irscope.diagnostics import DiagnosticSink
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.files import TemporaryFolder
from irscope.frontends.files.folders import INDEX, Adapter, Tensors, read_folder, stored_bytes
from irscope.frontends.generation.quantised import (
    Held,
    PackedLayer,
    computing_type,
    held_by_scheme,
    held_in_checkpoint,
    install_quantizer,
    kept_by_default,
    replace_linears,
    schemes_of,
    stored_with,
    unpack_before_forward,
)
from irscope.frontends.simulation.machine import Machine
from irscope.frontends.simulation.process import Process
from irscope.frontends.torch_lowering.dtypes import SAFETENSORS_DTYPES, torch_dtype
from irscope.frontends.zoo.adapters import put_on
from irscope.frontends.zoo.names import file_in, is_name, parse_name
from irscope.frontends.zoo.packages import (
    compare_weights,
    configured_class,
    counted_modules,
    inputs_taken,
    load_transformers,
    may_run,
    not_found,
    own_dtype,
    stored_dtype,
    warn_of_code,
    with_base,
)
from irscope.frontends.zoo.recipes import Wanted, weights_dtype
from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.memory.growth import Cut, Rhythm
from irscope.memory.tape import Tape
from irscope.weights.schemes import Packed, Scheme, method_of, scheme_in

if TYPE_CHECKING:
    from torch import nn

_HOOKS: Final = frozenset(("_before_forward", "_after_forward", "_answer"))
"""Functions of a `Generator` that a model's own code calls."""
CANDIDATES: Final = 20
"""Tokens that an assistant proposes in a round unless it is told otherwise (`num_assistant_tokens` of transformers 5)."""


MASK_KEYS: Final = 8
"""Masks of attention are padded to a multiple of so many keys (`mem_eff_alignment` of PyTorch's attention.cpp)."""


class ModelFails(Exception):
    """The code of the model or of its package raised what is the cause of this; faults of irscope's own are raised as they are."""


@contextmanager
def of_the_model() -> Iterator[None]:
    """Raise an error from within as the model's failure, unless it comes from irscope's own work when the model calls it."""
    try:
        yield
    except (torch.OutOfMemoryError, IrscopeError):
        raise
    except Exception as error:
        codes = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
        if any(code.co_name in _HOOKS and Path(code.co_filename).parent == Path(__file__).parent for code in codes):
            raise
        raise ModelFails from error


@immutable(slots=False)
class Wish:
    """Request for a generation: the model to load, and what to generate."""

    model: str
    prompt: int
    new: int
    batch: int = 1
    cache: str = "dynamic"
    cache_options: Mapping[str, object] = field(default_factory=dict)
    attention: str = ""
    """Which of transformers' implementations; empty for the name's own, else what they choose."""
    dtype: DType | None = None
    beams: int = 1
    samples: bool = False
    """True where tokens are sampled instead of the likeliest being taken."""
    chunk: int = 0
    """Tokens of the prompt that are read at once; 0 for all."""
    base: str = ""
    """Base model of an adapter; empty for the one that the adapter names."""
    trust_remote_code: bool = False
    """True where code in the folder may run."""
    cache_from: str = ""
    """The file in the folder that asks for this cache; empty where the user does, or nobody."""
    assistant: str = ""
    """A smaller model that proposes tokens, which the model then checks together."""
    candidates: int = CANDIDATES
    """Tokens that it proposes in a round."""
    accepted: int = 0
    """Of which so many are right, where so many are proposed."""
    scheme: Scheme | None = None
    """Storage scheme for weights that the checkpoint holds as plain numbers; None to keep them as they are."""

    def proposed(self, length: int) -> int:
        """Tokens that the assistant proposes behind so many: the model adds one more, and there is an end."""
        return min(self.candidates, self.prompt + self.new - length - 1) if self.assistant else 0

    def starts(self) -> Sequence[int]:
        """Tokens that there are when each step begins; the first of them reads the prompt."""
        end = self.prompt + self.new
        if not self.assistant:
            return range(self.prompt, end)
        starts = [self.prompt]
        while (length := starts[-1] + min(self.accepted, self.proposed(starts[-1])) + 1) < end:
            starts.append(length)
        return starts

    def alike(self) -> int:
        """Steps behind the one that reads the prompt that do the same, on more and more tokens."""
        starts = self.starts()
        if not self.assistant:
            return len(starts) - 1
        # One is left at least, after which generation ends.
        return min(sum(self.proposed(start) == self.candidates for start in starts[1:]), len(starts) - 2)


@immutable(slots=False)
class CacheLayer:
    """Part of the cache that one layer keeps of the tokens so far."""

    layer: int
    """Its number; -1 for what is kept for all layers together."""
    kind: str
    bytes: int
    """Of its tensors on the device."""
    held_bytes: int
    """Of the memory behind them, of which some may be views."""
    host_bytes: int
    window: int | None
    """Tokens that it looks back on, where it does not look back on all."""
    capacity: int | None
    """Tokens that it has room for, where room is made for all of them at once."""


@dataclass
class Run:
    """One call of `generate`: where it is on the tape."""

    begin: int
    """Requests before it, once the inputs exist."""
    cuts: list[Cut] = field(default_factory=list)
    """Where each forward that decodes begins."""
    end: int = 0
    cache: Sequence[CacheLayer] = ()
    """Content of the cache after the last forward."""


@dataclass
class Loaded:
    """A model on the simulated device."""

    module: Any
    end: int
    """Requests of the tape once it is loaded."""
    dtype: DType
    attention: str
    inputs: Sequence[Wanted]
    parameters: int
    parameter_bytes: int
    is_encoder_decoder: bool
    has_senses: bool
    """True where images or sounds may be in the prompt besides text."""
    schemes: Sequence[tuple[str, str, int]] = ()
    """Storage schemes of weights in few bits, the kernel that runs each, and their number of parameters."""
    packages: Mapping[str, bool] = field(default_factory=dict)
    """Packages that change what transformers does with it, and whether they are used."""


class Generator:
    """Loads a model once, and generates with it as often as is asked."""

    rhythm = Rhythm()

    def __init__(self, process: Process, wish: Wish, sink: DiagnosticSink) -> None:
        self._process = process
        self._machine: Machine = process.machine
        self._wish = wish
        self._left = 0
        """Reads of whether all sequences are finished until they are."""
        self._forwards = self._prefills = self._tokens = 0
        torch.backends.cuda.enable_cudnn_sdp(False)  # how much its plans take is known to nobody but the library
        self.loaded = self._load(wish, sink)
        if self.loaded.is_encoder_decoder:
            # Biases of relative positions are a mask of one query, whose keys are padded.
            self.rhythm = Rhythm(MASK_KEYS, own=4, alike=2)
        self.draft: Loaded | None = None
        """The assistant, where there is one."""

    # -- loading ---------------------------------------------------------------------------------------------------

    def _load(self, wish: Wish, sink: DiagnosticSink) -> Loaded:
        package = load_transformers()
        package.logging.disable_progress_bar()
        source = _source(package, wish, sink)
        config, cls, tensors = source.config, source.cls, source.tensors
        chosen = wish.dtype or source.dtype or own_dtype(config) or stored_dtype(tensors) or DType.F32
        attention = wish.attention or source.attention or None
        wanted = torch_dtype(chosen)
        if not hasattr(cls, "can_generate") or not cls.can_generate():
            raise UsageError(
                f"{cls.__name__} does not generate",
                code="IRS695",
                where=wish.model,
                hint="name a class that does, such as LlamaForCausalLM",
            )
        held = _linears_held(wish, source, wanted or torch.float32)
        if tensors is None or wish.scheme is not None:
            with torch.device("meta"):
                with of_the_model(), counted_modules(wish.model):
                    made = cls._from_config(config, dtype=wanted).to(wanted)
                replace_linears(made, held, wish.model)
                tensors = tensors_of(made)
        config.dtype, config.architectures = wanted, [cls.__name__]
        if held:
            tensors = stored_with(tensors, held)
            config.quantization_config = install_quantizer(held, wish.model)
        torch.cuda.init()
        with hollow(tensors) as folder:
            config.save_pretrained(str(folder))
            try:
                # Without accelerate transformers takes no device_map: then it is as programs without it load, on the host first.
                mapped = {"device_map": "cuda"} if find_spec("accelerate") or held else {}
                with of_the_model(), counted_modules(wish.model):
                    module = cls.from_pretrained(
                        str(folder), dtype=wanted, attn_implementation=attention, local_files_only=True, **mapped
                    ).eval()
                    module = module if mapped else module.to("cuda")
            except ModelFails as failure:
                if not isinstance(error := failure.__cause__, ValueError | ImportError):
                    raise
                raise LoadError(
                    f"transformers cannot load it: {' '.join(str(error).split())[:300]}", code="IRS197", where=wish.model
                ) from error
        if source.tensors is not None and not held:
            compare_weights(module, source.tensors, sink)
        unpack_before_forward(module, lambda made: self._is(made, "parameter"))
        if source.adapter is not None:
            put_on(module, source.adapter)
        for value in module.parameters():
            self._is(value, "parameter")
        for value in module.buffers():
            self._is(value, "buffer")
        module.generation_config = package.GenerationConfig(
            pad_token_id=0, eos_token_id=None, bos_token_id=1, decoder_start_token_id=0 if config.is_encoder_decoder else None
        )
        return Loaded(
            module,
            self._cut(),
            chosen,
            str(getattr(module.config, "_attn_implementation", attention) or ""),
            list(inputs_taken(module, config, inspect.signature(cls.forward).parameters)),
            _parameter_count(module),
            sum(value.numel() * value.element_size() for value in module.parameters()),
            bool(config.is_encoder_decoder),
            any(getattr(config, f"{sense}_config", None) is not None for sense in ("vision", "audio")),
            schemes_of(held),
            {"accelerate": bool(mapped)},
        )

    # -- generating ------------------------------------------------------------------------------------------------

    def without_limit(self) -> AbstractContextManager[None]:
        """While no memory is refused."""
        return self._machine.without_limit()

    def asked(self, wish: Wish) -> int:
        """Other sizes from here on, as for a process that has only loaded the model: where its inputs will begin."""
        self._wish = wish
        self.loaded.module.__dict__.pop("_previous_max_cache_length", None)  # a static cache is never shorter than the one before
        self._machine.drop_kept()
        return self._cut()

    def behind(self, written: int, new: int, forwards: int = 0) -> Run:
        """The same behind so many tokens that what generates has before it: the prompt, or what a decoder beside an encoder has written."""
        if self.loaded.is_encoder_decoder:
            return self.run(self._wish.prompt, new, forwards, written)
        return self.run(written, new, forwards)

    def run(self, prompt: int, new: int, forwards: int = 0, written: int = 0) -> Run:
        """Generate `new` tokens for a prompt; with `forwards` say after so many that decode that all sequences have ended.

        `written` is how many tokens a decoder begins with, where that is not the one that it always does.
        """
        module, wish = self.loaded.module, self._wish
        inputs = self._inputs(prompt)
        if written:
            inputs["decoder_input_ids"] = torch.zeros(wish.batch, written, dtype=torch.int64, device="cuda")
        run = Run(self._cut())
        options: dict[str, Any] = {"max_new_tokens": new, "do_sample": wish.samples, "use_cache": True, "disable_compile": True}
        if wish.cache != "dynamic":
            options["cache_implementation"] = wish.cache
        if wish.cache_options:
            options["cache_config"] = dict(wish.cache_options)
        if wish.beams > 1:
            options["num_beams"] = wish.beams
        if wish.chunk:
            options["prefill_chunk_size"] = wish.chunk
        options |= self._options()
        self._left = forwards + 1 if forwards else new
        self._forwards, self._prefills = 0, -(-prompt // wish.chunk) if wish.chunk else 1
        self._tokens = prompt + new
        hooks = (
            module.register_forward_pre_hook(lambda *_: self._before_forward(run)),
            module.register_forward_hook(lambda _, args, kwargs, out: self._after_forward(run, kwargs, out), with_kwargs=True),
        )
        try:
            with torch.no_grad(), self._answers(), of_the_model():
                out = module.generate(**inputs, **options)
        finally:
            for hook in hooks:
                hook.remove()
        run.end = self._cut()
        del inputs, out  # what the caller has is there until the end
        return run

    def _options(self) -> dict[str, Any]:
        """Further options of `generate`."""
        return {}

    def _begin_step(self, run: Run) -> None:
        gpu = self._machine.settled_gpu
        run.cuts.append(Cut(gpu.tape.cut(), gpu.issued()))

    def _before_forward(self, run: Run) -> None:
        """Begin a step at each forward that decodes: the prompt has been read."""
        self._forwards += 1
        if self._forwards > self._prefills:
            self._begin_step(run)

    def _after_forward(self, run: Run, kwargs: Mapping[str, Any], out: Any) -> None:
        """Note what the cache holds now."""
        run.cache = self._layers(cache_of(kwargs, out))

    def tape(self) -> Tape[Any]:
        """Return the requests to the allocator so far."""
        return self._machine.tape()

    # -- what memory is for ----------------------------------------------------------------------------------------

    def _cut(self) -> int:
        return self._machine.settled_gpu.tape.cut()

    def _is(self, tensor: torch.Tensor, kind: str) -> None:
        piece = self._machine.piece_under(tensor) if tensor.is_cuda else None
        if piece is not None:
            piece.kind = kind

    def _layers(self, cache: Any) -> list[CacheLayer]:
        """Return the content of each layer of a cache; memory in it is marked as the cache's from here on."""
        cache_layers: list[CacheLayer] = []
        seen: set[int] = set()
        parts = [
            (getattr(cache, name), prefix)
            for name, prefix in (("self_attention_cache", ""), ("cross_attention_cache", "cross "))
            if hasattr(cache, name)
        ]
        for part, prefix in parts or [(cache, "")]:
            layers = list(getattr(part, "layers", None) or ())
            for number, layer in enumerate(layers):
                kind = _kind_of(layer)
                window, capacity = getattr(layer, "sliding_window", None), getattr(layer, "max_cache_len", None)
                if window is None and capacity is not None and "sliding" in kind:
                    window = getattr(self.loaded.module.config.get_text_config(), "sliding_window", None)
                cache_layer = CacheLayer(
                    number,
                    prefix + kind,
                    *self._bytes(vars(layer), seen),
                    window if isinstance(window, int) else None,
                    capacity if isinstance(capacity, int) else None,
                )
                cache_layers.append(cache_layer)
            for number, kind, held in _besides(part, len(layers)):
                sizes = self._bytes({"": held}, seen)
                if any(sizes):
                    cache_layers.append(CacheLayer(number, prefix + kind, *sizes, None, None))
        return cache_layers

    def _bytes(self, held: Mapping[str, Any], seen: set[int]) -> tuple[int, int, int]:
        """Bytes of tensors on the device, of the memory behind those that is not `seen` yet, and of tensors on the host."""
        on_device = behind = on_host = 0
        for tensor in _tensors_in(held):
            if tensor.dtype in _COUNTERS or not tensor.numel():
                continue
            self._is(tensor, "cache")
            size, storage = tensor.numel() * tensor.element_size(), tensor.untyped_storage()
            if not tensor.is_cuda:
                on_host += size
                continue
            on_device += size
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                behind += storage.nbytes()
        return on_device, behind, on_host

    # -- inputs and values -----------------------------------------------------------------------------------------

    def _inputs(self, prompt: int) -> dict[str, torch.Tensor]:
        batch, config = self._wish.batch, self.loaded.module.config
        inputs: dict[str, torch.Tensor] = {}
        for value in self.loaded.inputs:
            if value.name.startswith("decoder_"):
                continue
            shape = [size if isinstance(size, int) else {"batch": batch, "seq": prompt}[size] for size in value.shape]
            dtype = torch_dtype(self.loaded.dtype) if value.dtype.is_float else torch_dtype(value.dtype)
            make = torch.ones if value.name == "attention_mask" else torch.zeros
            inputs[value.name] = make(*shape, dtype=dtype, device="cuda")
        if "input_ids" in inputs and "attention_mask" not in inputs and not config.is_encoder_decoder:
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        for tensor in inputs.values():
            self._is(tensor, "input")
        return inputs

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Values that a card would have: masks are all ones, and all sequences end after the last step."""
        process = self._process
        before = process.answer_by
        process.answer_by = self._answer
        try:
            yield
        finally:
            process.answer_by = before

    def _answer(self, frame: FrameType, value: Any) -> Any:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        if file.endswith("masking_utils.py") or function in _MASKS:
            return True  # nothing is padded, nothing is packed
        if file.endswith(_LOOP):
            if not self._forwards:
                return function == "generate" and isinstance(value, bool)  # the attention mask is all ones; no end token is a pad
            if function in _ENDS:
                self._left -= 1
                return self._left <= 0
            if function == "_beam_search":
                if not isinstance(value, bool):
                    return self._tokens
                self._left -= 1
                return self._left > 0
        return value


@immutable(slots=False)
class _Source:
    """Source that a model is made from."""

    config: Any
    cls: Any
    tensors: Tensors | None
    """Of its checkpoint, where there is one."""
    dtype: DType | None
    """Element type that the name requests, if it does."""
    attention: str
    adapter: Adapter | None = None
    quantisation: Mapping[str, Any] = field(default_factory=dict)
    """The `quantization_config`."""


def _source(package: Any, wish: Wish, sink: DiagnosticSink) -> _Source:
    if not is_name(wish.model):
        folder = Path(wish.model)
        if not folder.is_dir():
            raise not_found(wish.model)
        if file_in(folder).suffix == ".gguf":
            hint = f"`irscope {wish.model}` says what its weights and its cache take"
            raise UsageError("its model is a GGUF file, which holds no code to run", code="IRS695", where=wish.model, hint=hint)
        read_folder(folder, sink)  # which has no configuration that the package knows, and says why
        raise LoadError("its configuration names no model", code="IRS197", where=wish.model, hint="it needs a model_type or architectures")
    name, adapter = with_base(parse_name(wish.model), wish.base)
    if name.package != "transformers":
        hint = "transformers:llama, or a folder with a config.json"
        raise UsageError("it is not a language model of transformers", code="IRS695", where=wish.model, hint=hint)
    options = dict(name.options)
    dtype = weights_dtype(options.pop("dtype", None), name.text)
    attention = str(options.pop("attn_implementation", ""))
    folder = Path(name.model)
    tensors = read_folder(folder, sink)[1] if folder.is_dir() else None
    trusted = may_run(adapter, trusted=wish.trust_remote_code)
    config, cls = configured_class(package, name.model, options, trusted=trusted)
    if folder.is_dir():
        warn_of_code(folder, cls, sink)
    return _Source(config, cls, tensors, dtype, attention, adapter, _taken_quantisation(config))


def _taken_quantisation(config: Any) -> dict[str, Any]:
    """Take what a configuration says of quantisation out of it: its own package need not be there."""
    found: Any = None
    parts: list[Any] = [config, getattr(config, "text_config", None)]
    for part in parts:
        if getattr(part, "quantization_config", None) is not None:
            found = found or part.quantization_config
            del part.quantization_config
    return {} if found is None else dict(found if isinstance(found, dict) else found.to_dict())


def _linears_held(wish: Wish, source: _Source, dtype: torch.dtype) -> dict[str, Held]:
    """Return what linear layers hold in the place of plain weights; nothing where weights are plain."""
    settings = source.quantisation
    packed = source.tensors.packed if source.tensors is not None else Packed()
    scheme = wish.scheme
    if packed.weights or packed.unknown or (settings and source.tensors is None):
        if scheme is not None:
            said = f"its weights are quantised already ({packed.weights[0].scheme if packed.weights else method_of(settings)})"
            raise UsageError(said, code="IRS432", where=wish.model, hint=f"--as {scheme.name} is for models with plain weights")
        if source.tensors is not None:
            return held_in_checkpoint(packed, source.tensors, computing_type(settings, dtype), wish.model)
        scheme = scheme_in(settings)
        if scheme is None:
            said = f"its configuration says that weights are quantised by {method_of(settings) or 'some method'}"
            raise LoadError(
                f"{said}, and there are no weights that show how", code="IRS169", where=wish.model, hint="put the weights beside it"
            )
    if scheme is None:
        return {}
    with torch.device("meta"), of_the_model():
        plain = source.cls._from_config(source.config, dtype=dtype)
    held = held_by_scheme(plain, scheme, kept_by_default(plain, scheme), computing_type(settings, dtype))
    if not held:
        raise UsageError(f"no linear layer can be stored as {scheme.text}", code="IRS432", where=wish.model)
    return held


def _parameter_count(module: Any) -> int:
    """Weights, those that are in few bits included."""
    packed = [module for module in module.modules() if isinstance(module, PackedLayer)]
    codes = {id(part) for one in packed for name, part in one.named_parameters(recurse=False) if name in one.held.parts}
    plain = sum(int(value.numel()) for value in module.parameters() if id(value) not in codes)
    return plain + sum(one.held.count for one in packed)


def cache_of(kwargs: Mapping[str, Any], out: Any) -> Any:
    """Return the cache that a forward was given or has made."""
    given = [kwargs.get(name) for name in _CACHES] + [getattr(out, name, None) for name in _CACHES]
    return next((argument for argument in given if argument is not None), None)


def _tensors_in(held: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    for holding in held.values():
        if isinstance(holding, torch.Tensor):
            yield holding
            for name in getattr(holding, "__tensor_flatten__", lambda: ((), None))()[0]:
                yield getattr(holding, name)
        elif isinstance(holding, list | tuple):
            yield from _tensors_in({str(number): part for number, part in enumerate(holding)})
        elif isinstance(holding, dict):
            yield from _tensors_in(holding)


def _besides(part: Any, layers: int) -> Iterator[tuple[int, str, Any]]:
    """Yield the tensors that a cache keeps outside of its layers, by layer where it has some for each: layer, name, content."""
    others = {name: variable for name, variable in vars(part).items() if name != "layers"} if hasattr(part, "__dict__") else {"state": part}
    for name, held in others.items():
        kind = name.strip("_").replace("_", " ")
        if isinstance(held, dict) and held and all(isinstance(key, int) for key in held):
            yield from ((number, kind, holding) for number, holding in held.items())
        elif isinstance(held, list | tuple) and len(held) == layers:
            yield from ((number, kind, holding) for number, holding in enumerate(held))
        else:
            yield -1, kind, held


def _kind_of(layer: Any) -> str:
    """DynamicSlidingWindowLayer -> dynamic sliding window."""
    name = type(layer).__name__.removesuffix("Layer")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


DRAFT: Final = "draft "
"""Before the kind of an assistant's cache."""
_CACHES: Final = ("past_key_values", "cache_params", "state")
"""Names that models give their cache."""
_COUNTERS: Final = (torch.int64, torch.bool)
"""Of tensors in which a layer counts tokens."""
_LOOP: Final = "generation/utils.py"
_ENDS: Final = frozenset(("__call__", "_has_unfinished_sequences", "_sample"))
"""Functions of `generate` that ask whether all sequences have ended."""
_MASKS: Final = frozenset(
    ("_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa", "_update_causal_mask", "_update_mamba_mask", "_update_linear_attn_mask")
)
"""Functions of models that ask whether a mask hides anything."""


# A checkpoint without weights: files as `from_pretrained` wants them, with the right headers and a hole where the values would be.

_CODES: Final = {dtype: code for code, dtype in SAFETENSORS_DTYPES.items()}


def tensors_of(module: nn.Module) -> Tensors:
    """Return the tensors that `save_pretrained` would write of a module: a tensor that two names share is written once."""
    from irscope.frontends.eager.record import dtype_of

    seen: set[int] = set()
    found: dict[str, tuple[DType, tuple[int, ...]]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = (dtype_of(tensor), tuple(tensor.shape))
    return Tensors({"model.safetensors": found})


@contextmanager
def hollow(tensors: Tensors) -> Iterator[Path]:
    """Yield a folder with these tensors, for as long as the context lasts, in which what is mapped takes no memory.

    Only what `frontends.files.folders` read and checked is written.
    """
    with TemporaryFolder() as path:
        folder = Path(path)
        places: dict[str, str] = {}
        for number, (name, of_file) in enumerate(tensors.files.items(), 1):
            many = len(tensors.files) > 1
            file = f"model-{number:05}-of-{len(tensors.files):05}.safetensors" if many else "model.safetensors"
            _write_hollow(folder / file, of_file, name)
            places |= dict.fromkeys(of_file, file)
        if len(tensors.files) > 1:
            (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": tensors.bytes}, "weight_map": places}))
        with _mapped_as_shared():
            yield folder


@contextmanager
def _mapped_as_shared() -> Iterator[None]:
    """Open checkpoints without room for copies of what is written to them.

    safetensors maps a file privately and writable, for which Linux sets memory aside or refuses to map what is larger than it all. What is
    mapped in here is a file of our own, which nothing writes to.
    """
    storage: Any = torch.UntypedStorage
    inherited = storage.from_file

    def from_file(filename: Any, shared: bool = False, nbytes: int = 0) -> Any:
        return inherited(filename, True, nbytes)

    storage.from_file = staticmethod(from_file)
    try:
        yield
    finally:
        del storage.from_file


def _write_hollow(path: Path, tensors: Mapping[str, tuple[DType, tuple[int, ...]]], where: str) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        if dtype not in _CODES:
            raise LoadError(f"tensor {name[:80]!r} is of {dtype.text}, which safetensors cannot hold", code="IRS197", where=where)
        size = stored_bytes(dtype, shape)
        header[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


# Generation with an assistant: a smaller model proposes tokens, and the model checks them in one forward.

_LOOPS: Final = frozenset(("_sample", "_assisted_decoding"))
"""Functions of `generate` that make tokens until all sequences have ended."""


class AssistedGenerator(Generator):
    """Loads both models, and generates with them. A step is a round: tokens that the assistant proposes, and one forward of the model.

    How many of them are right is a matter of values. What is asked for is answered: an assistant that is sure of all its tokens, of which
    a given number is accepted in each round.
    """

    def __init__(self, process: Process, wish: Wish, sink: DiagnosticSink) -> None:
        super().__init__(process, wish, sink)
        draft = self._load(replace(wish, model=wish.assistant, base="", scheme=None), sink)
        # With it `AssistedCandidateGenerator` keeps all scores of a round once more, to learn how sure the assistant has to be.
        packages = {**draft.packages, "scikit-learn": bool(load_transformers().utils.is_sklearn_available())}
        self.draft = draft = replace(draft, packages=packages)
        self.loaded.end = draft.end
        texts = [one.module.config.get_text_config() for one in (self.loaded, draft)]
        if texts[0].vocab_size != texts[1].vocab_size:
            raise UsageError(
                f"the assistant knows {texts[1].vocab_size:,} tokens, the model {texts[0].vocab_size:,}",
                code="IRS696",
                where=wish.assistant,
                hint="with other tokenizers what it proposes is translated through text, which is not simulated",
            )
        draft.module.generation_config.num_assistant_tokens = wish.candidates
        # A mask of several queries is padded to whole multiples of some keys, unless it is one: rounds with the same remainder are alike.
        # What a round leaves is given back within three.
        self.rhythm = Rhythm(max(MASK_KEYS // math.gcd(MASK_KEYS, wish.accepted + 1), 4), own=4, alike=2)
        self._rounds = 0
        """Until generation is stopped; below zero for all."""
        self._caches: dict[str, Any] = {}
        self._run: Run | None = None
        self._helper = draft.module

    def run(self, prompt: int, new: int, forwards: int = 0, written: int = 0) -> Run:
        """The same in rounds: `forwards` are those behind the one that reads the prompt. The end of the last round is marked as well."""
        self._rounds = forwards or -1
        self._caches = {}
        hook = self._helper.register_forward_hook(lambda _, args, kwargs, out: self._seen(DRAFT, kwargs, out), with_kwargs=True)
        try:
            return super().run(prompt, new, forwards, written)
        finally:
            hook.remove()

    def _options(self) -> dict[str, Any]:
        return {"assistant_model": self._helper}

    def _before_forward(self, run: Run) -> None:
        self._forwards += 1
        self._run = run

    def _after_forward(self, run: Run, kwargs: Mapping[str, Any], out: Any) -> None:
        self._seen("", kwargs, out)

    def _seen(self, whose: str, kwargs: Mapping[str, Any], out: Any) -> None:
        self._caches[whose] = cache_of(kwargs, out)

    def _ends(self, loop: FrameType) -> bool:
        """Return whether a loop ends here; a round of the outer loop is over."""
        length, most = loop.f_locals["input_ids"].shape[1], loop.f_locals["stopping_criteria"].max_length
        if loop.f_code.co_name == "_sample":
            return bool(length >= most)
        run = self._run
        assert run is not None
        self._begin_step(run)
        run.cache = [
            replace(layer, kind=f"{whose}{layer.kind}") for whose, cache in sorted(self._caches.items()) for layer in self._layers(cache)
        ]
        self._rounds -= 1
        over = bool(length >= most) or self._rounds == -1
        if over:
            self._caches.clear()  # they are given back when `generate` returns
        return over

    def _answer(self, frame: FrameType, value: Any) -> Any:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        if file.endswith("generation/stopping_criteria.py") and isinstance(value, float):
            return 1.0  # how sure the assistant is
        if not file.endswith("generation/utils.py"):
            return super()._answer(frame, value)
        if function == "generate":
            return isinstance(value, bool)  # the attention mask is all ones
        if function == "_speculative_sampling":
            locals_ = frame.f_locals
            right = min(self._wish.accepted, locals_["candidate_length"])
            if not isinstance(value, bool):
                return right
            return right > 0 if "p_prime" in locals_ else right < locals_["gamma"]
        loop = next((one for one in _outer_frames(frame) if one.f_code.co_name in _LOOPS), None)
        if loop is None:
            return value
        if isinstance(value, bool):
            return self._ends(loop) if function in _ENDS else value
        return min(self._wish.accepted, loop.f_locals["candidate_length"]) + 1 if function == "_assisted_decoding" else value


def _outer_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
