"""GGUF files written by hand, so that tests need no package and can lie."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from irscope.frontends.files.gguf import TYPES
from irscope.ir.dtypes import DType

CODES = {dtype: code for code, dtype in TYPES.items()}
Value = int | float | bool | str | Sequence[int] | Sequence[str] | Sequence[bool]


@dataclass
class Gguf:
    """A file as it will be written; tests change what they lie about."""

    metadata: Mapping[str, Value] = field(default_factory=dict)
    tensors: Mapping[str, tuple[DType, tuple[int, ...]]] = field(default_factory=dict)
    version: int = 3
    alignment: int = 32
    order: str = "<"
    tensor_count: int | None = None
    entry_count: int | None = None
    cut: int = 0
    raw_entries: Sequence[bytes] = ()
    offsets: Mapping[str, int] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict)

    def pack(self, form: str, *values: object) -> bytes:
        return struct.pack(f"{self.order}{form}", *values)

    def text(self, text: str) -> bytes:
        return self.pack("Q", len(text.encode())) + text.encode()

    def entry(self, key: str, kind: int, value: bytes) -> bytes:
        return self.text(key) + self.pack("I", kind) + value

    def _value(self, value: Value) -> tuple[int, bytes]:
        if isinstance(value, bool):
            return 7, self.pack("?", value)
        if isinstance(value, int):
            return (4, self.pack("I", value)) if 0 <= value < 1 << 32 else (11, self.pack("q", value))
        if isinstance(value, float):
            return 6, self.pack("f", value)
        if isinstance(value, str):
            return 8, self.text(value)
        kinds = [self._value(one) for one in value]
        return 9, self.pack("IQ", kinds[0][0] if kinds else 4, len(kinds)) + b"".join(data for _, data in kinds)

    def header(self) -> bytes:
        entries = [self.entry(key, *self._value(value)) for key, value in self.metadata.items()] + list(self.raw_entries)
        if self.alignment != 32:
            entries.append(self.entry("general.alignment", 4, self.pack("I", self.alignment)))
        found = b"GGUF" + self.pack("I", self.version)
        found += self.pack("Q", len(self.tensors) if self.tensor_count is None else self.tensor_count)
        found += self.pack("Q", len(entries) if self.entry_count is None else self.entry_count)
        found += b"".join(entries)
        offset = 0
        for name, (dtype, shape) in self.tensors.items():
            found += self.text(name) + self.pack("I", len(shape)) + b"".join(self.pack("Q", size) for size in reversed(shape))
            found += self.pack("I", self.codes.get(name, CODES.get(dtype, 999))) + self.pack("Q", self.offsets.get(name, offset))
            offset += self._padded(dtype.bytes_of(prod(shape)) or 0)
        return found

    def _padded(self, size: int) -> int:
        return -(-size // self.alignment) * self.alignment

    def data(self) -> bytes:
        return bytes(sum(self._padded(dtype.bytes_of(prod(shape)) or 0) for dtype, shape in self.tensors.values()))

    def contents(self) -> bytes:
        head = self.header()
        found = head + bytes(-len(head) % self.alignment) + self.data()
        return found[: len(found) - self.cut]

    def write(self, path: Path) -> Path:
        path.write_bytes(self.contents())
        return path


LLAMA: Mapping[str, Value] = {
    "general.architecture": "llama",
    "general.name": "small",
    "llama.block_count": 2,
    "llama.context_length": 4096,
    "llama.embedding_length": 256,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": [f"token {number}" for number in range(100)],
}


def small(metadata: Mapping[str, Value] = LLAMA) -> Gguf:
    """A file with a few tensors of several types."""
    tensors = {"token_embd.weight": (DType.Q6_K, (100, 256)), "output_norm.weight": (DType.F32, (256,))}
    for layer in range(2):
        tensors[f"blk.{layer}.attn_q.weight"] = (DType.Q4_K, (256, 256))
        tensors[f"blk.{layer}.attn_k.weight"] = (DType.Q8_0, (64, 256))
        tensors[f"blk.{layer}.attn_norm.weight"] = (DType.F32, (256,))
    return Gguf(metadata, tensors)
