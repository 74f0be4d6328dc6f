"""What a file of weights says of the model that they are of: its figures, and what its cache of keys and values would take.

The keys are GGUF's (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), without the name of the architecture that they begin with.
The cache is arithmetic, not a graph: elements of a token times layers, as llama.cpp's `llama_kv_cache` makes its tensors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Final, NamedTuple

from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.report.table import Table
from irscope.report.values import Provenance, Quantity

_CACHED: Final = DType.F16
"""Of an element of the cache where metadata names no `cache_type`: llama.cpp's, unless --cache-type-k and --cache-type-v say another."""
_SHOWN: Final = (
    "general.name", "general.type", "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.kv_lora_rank",
    "attention.sliding_window", "attention.shared_kv_layers", "expert_count", "expert_used_count", "expert_feed_forward_length",
    "ssm.state_size", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor",
)  # fmt: skip
_STATES: Final = ("ssm.", "wkv.", "time_mix_", "shortconv.")
"""Keys of layers that keep a state of fixed size instead of keys and values."""
_MOST_LAYERS: Final = 10_000
_NUMBER: Final = re.compile(r"-?\d{1,18}")


class Kept(NamedTuple):
    """Elements that layers keep of a token."""

    heads: int
    key: int
    value: int
    """Elements of a head."""
    window: int
    """Tokens after which no more is kept; 0 for none."""


@immutable(slots=False)
class Described:
    """Description of the model in the metadata of a file."""

    architecture: str
    figures: Mapping[str, str]
    context: int | None
    """Tokens that the model was made for."""
    layers: Mapping[Kept, int] = field(default_factory=dict)
    """Layers by what they keep of each token."""
    is_latent: bool = False
    """True where keys and values may be one tensor, as of latent attention."""
    perhaps_window: int = 0
    """Tokens after which some layers keep no more, where the file does not say which; 0 for none."""
    why: str = ""
    """Why the cache is not known; empty where it is."""
    dtype: DType = _CACHED
    """Of an element of the cache."""

    @property
    def cache(self) -> Quantity:
        """Bytes that one more token adds while no window is full."""
        return self._bytes(1)

    @property
    def cache_at_context(self) -> Quantity:
        """Bytes of the cache with as many tokens as the model was made for."""
        return self._bytes(self.context) if self.context else Quantity(None, Provenance.UNKNOWN)

    @property
    def _element(self) -> int:
        return (self.dtype.bits or 8) // 8

    def _bytes(self, tokens: int) -> Quantity:
        if self.why:
            return Quantity(None, Provenance.UNKNOWN, note=self.why)
        found = least = 0
        for one, layers in self.layers.items():
            seen = min(tokens, one.window) if one.window else tokens
            found += layers * one.heads * (one.key + one.value) * self._element * seen
            seen = min(seen, self.perhaps_window) if self.perhaps_window else seen
            least += layers * one.heads * (one.key + (0 if self.is_latent else one.value)) * self._element * seen
        low, high = (least, found) if least != found else (None, None)
        return Quantity(found, Provenance.MODELLED, note=self.law, lo=low, hi=high)

    @property
    def law(self) -> str:
        """Return the arithmetic in words; empty where the cache is not known."""
        if self.why:
            return ""
        terms = []
        for one, layers in self.layers.items():
            within = f" of the last {one.window:,} tokens" if one.window else ""
            terms.append(f"{layers} layers * {one.heads} heads * ({one.key} + {one.value}){within}")
        sum_ = f"({' + '.join(terms)})" if len(terms) > 1 else "".join(terms) or "0 layers"
        found = f"{self._element} bytes of {self.dtype.text} * {sum_}"
        if self.is_latent:
            found += "; less where values are a part of the keys"
        return f"{found}; less where layers have the window of {self.perhaps_window:,}" if self.perhaps_window else found

    def table(self) -> Table:
        """Return what the file says, by its own keys."""
        return Table.of([("architecture", self.architecture), *self.figures.items()], ["key:text", "value:text"], "described")


class _Unknown(Exception):
    """The reason why the cache is not known."""


def described(metadata: Mapping[str, str]) -> Described | None:
    """Return what metadata says of the model; None where it names no architecture."""
    architecture = metadata.get("general.architecture", "")
    if not architecture:
        return None
    said = _Said(architecture, metadata)
    figures = {key: text for key in _SHOWN if (text := said.text(key))}
    if "vocab_size" not in figures and (tokens := metadata.get("tokenizer.ggml.tokens", "").partition(" ")[0]).replace(",", "").isdigit():
        figures["vocab_size"] = tokens.replace(",", "")
    if metadata.get("split.count", "0") not in ("0", "1"):
        figures["split.count"] = metadata["split.count"]
    context = said.number("context_length")
    try:
        layers, is_latent, perhaps_window = _layers(said)
    except _Unknown as why:
        return Described(architecture, figures, context, why=str(why))
    named = said.text("cache_type")
    dtype = next((one for one in DType if one.text == named), _CACHED)
    return Described(architecture, figures, context, layers, is_latent, perhaps_window, dtype=dtype)


class _Said:
    """Metadata under the name of the architecture."""

    def __init__(self, architecture: str, metadata: Mapping[str, str]) -> None:
        self._architecture = architecture
        self._metadata = metadata

    def text(self, key: str) -> str:
        return self._metadata.get(key if key.startswith("general.") else f"{self._architecture}.{key}", "")

    def number(self, key: str) -> int | None:
        text = self.text(key)
        return int(text) if _NUMBER.fullmatch(text) else None

    def size(self, key: str) -> int:
        """Return a size that has to be there."""
        found = self.number(key)
        if found is None or found < 0:
            raise _Unknown(f"the file does not say {self._architecture}.{key}")
        return found

    def of_each(self, key: str, layers: int) -> list[int] | None:
        """Return what a list says of each layer; None where there is none, or another number of them."""
        text = self.text(key)
        parts = text[1:-1].split(", ") if text.startswith("[") else []
        words = {"true": 1, "false": 0}
        found = [words[part] if part in words else int(part) if _NUMBER.fullmatch(part) else -1 for part in parts]
        return found if len(found) == layers and min(found) >= 0 else None

    def has(self, beginning: str) -> bool:
        return any(key.startswith(f"{self._architecture}.{beginning}") for key in self._metadata)


def _layers(said: _Said) -> tuple[dict[Kept, int], bool, int]:
    """Return the layers by what they keep; whether that is latent, and a window that some of them may have."""
    if why := said.text("cache_unknown"):
        raise _Unknown(why)
    count = said.size("block_count") - (said.number("nextn_predict_layers") or 0)
    if not 0 < count <= _MOST_LAYERS:
        raise _Unknown("the file says no number of layers that can be")
    if said.text("attention.causal") == "false":
        raise _Unknown("it does not generate: its attention looks both ways")
    if said.number("decoder_start_token_id") is not None or said.number("decoder_block_count") is not None:
        raise _Unknown("its decoder also keeps what its encoder read")
    heads = _heads(said, count)
    if not any(heads):
        return {}, False, 0
    key = said.number("attention.key_length")
    value = said.number("attention.value_length")
    if key is None or value is None:
        of_all = said.of_each("attention.head_count", count)
        own = max(of_all, default=0) if of_all is not None else said.size("attention.head_count")
        width = said.size("embedding_length") // own if own else 0
        key, value = key or width, value or width
    window, in_window = _windows(said, count)
    keys = (key, said.number("attention.key_length_swa") or key)
    values = (value, said.number("attention.value_length_swa") or value)
    rank = said.number("attention.kv_lora_rank")
    is_latent = bool(rank) and set(heads) <= {0, 1} and key == (rank or 0) + (said.number("rope.dimension_count") or 0)
    shared = said.number("attention.shared_kv_layers") or 0
    counter: Counter[Kept] = Counter()
    for layer in range(count - shared if 0 <= shared < count else count):
        if heads[layer]:
            inside = in_window[layer]
            counter[Kept(heads[layer], keys[inside], values[inside], window if inside else 0)] += 1
    return dict(counter), is_latent, 0 if any(in_window) or said.text("attention.sliding_window_pattern") else window


def _heads(said: _Said, count: int) -> list[int]:
    """Heads of keys and values in each layer; 0 for layers that keep none."""
    of_each = said.of_each("attention.head_count_kv", count) or said.of_each("attention.head_count_kv", said.size("block_count"))
    if of_each is not None:
        return of_each[:count]
    if said.text("attention.head_count_kv").startswith("["):
        raise _Unknown("its list of heads has another length than there are layers")
    heads = said.number("attention.head_count_kv")
    heads = said.size("attention.head_count") if heads is None else heads
    if not heads or not any(said.has(one) for one in _STATES):
        return [heads] * count
    every = said.number("full_attention_interval")
    if not every or every < 0:
        raise _Unknown("some layers keep a state of fixed size, and the file does not say which")
    return [heads if (layer + 1) % every == 0 else 0 for layer in range(count)]


def _windows(said: _Said, count: int) -> tuple[int, list[bool]]:
    """Return the sliding window, and whether each layer has it."""
    window = said.number("attention.sliding_window") or 0
    if window <= 0:
        return 0, [False] * count
    pattern = said.of_each("attention.sliding_window_pattern", count)
    if pattern is not None:
        return window, [bool(one) for one in pattern]
    every = said.number("attention.sliding_window_pattern")
    if every is not None and every > 0:
        return window, [layer % every < every - 1 for layer in range(count)]
    return window, [False] * count
