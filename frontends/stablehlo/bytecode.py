"""Reads MLIR bytecode with operations of VHLO, the versioned dialect: the portable artifact of StableHLO, as `jax.export` writes it.

The format is that of docs/BytecodeFormat.md of MLIR, versions 1 to 6; the codes of attributes and types are those of the bytecode of
the dialects builtin and vhlo, which are never given another meaning.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from irscope.budget import claim, spend
from irscope.errors import LoadError
from irscope.frontends.stablehlo.model import NOWHERE, Attribute, Dense, Function, Module, Operation, Place, Region, mesh_axes, refuse

MAGIC: Final = b"ML\xefR"
_LAST_VERSION: Final = 6
_STRINGS, _DIALECTS, _ATTRIBUTES, _OFFSETS, _IR, _PROPERTIES = 0, 1, 2, 3, 4, 8
_VERSIONED: Final = 1
_BLOCK_SIZES: Final = 4
"""From this version on arguments of blocks may lack a location, and operators are counted first."""
_USE_LISTS: Final = 3
_LAZY: Final = 2
_MANUAL, _AXIS, _MESH, _AXIS_USED, _DIMENSION, _SHARDING, _PER_VALUE = 0, 1, 2, 4, 5, 6, 7
"""Codes of the attributes of Shardy."""
_NATIVE: Final = 5
_HAS_ATTRS, _HAS_RESULTS, _HAS_OPERANDS, _HAS_SUCCESSORS, _HAS_REGIONS, _HAS_USES, _HAS_PROPERTIES = (1 << bit for bit in range(7))
_DEEPEST: Final = 200
_MOST_DEPTH_OF_ATTRIBUTES: Final = 100
_DYNAMIC: Final = -(1 << 63)
_VERSION: Final = re.compile(r"_v\d+$")

_GROUPS = "replica_groups"
_CONV = (
    "batch_group_count feature_group_count input_batch_dimension input_feature_dimension input_spatial_dimensions "
    "kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions lhs_dilation output_batch_dimension "
    "output_feature_dimension output_spatial_dimensions"
)
PROPERTIES: Final[dict[str, str]] = {
    "all_gather": f"all_gather_dim channel_id {_GROUPS} use_global_device_ids",
    "all_reduce": f"channel_id {_GROUPS} use_global_device_ids",
    "all_to_all": f"channel_id concat_dimension {_GROUPS} split_count split_dimension",
    **dict.fromkeys(("batch_norm_grad", "batch_norm_inference", "batch_norm_training"), "epsilon feature_index"),
    "broadcast": "broadcast_sizes",
    "broadcast_in_dim": "broadcast_dimensions",
    "call": "callee",
    "cholesky": "lower",
    "collective_broadcast": f"channel_id {_GROUPS}",
    "collective_permute": "channel_id source_target_pairs",
    "compare": "compare_type comparison_direction",
    "composite": "composite_attributes decomposition name version",
    "concatenate": "dimension",
    "constant": "value",
    "convolution": f"{_CONV} padding precision_config rhs_dilation window_reversal window_strides",
    "custom_call": "api_version backend_config call_target_name called_computations has_side_effect operand_layouts "
    "output_operand_aliases result_layouts",
    "dot_general": "lhs_batching_dimensions lhs_contracting_dimensions precision_config rhs_batching_dimensions rhs_contracting_dimensions",
    "dot_general_v2": "accumulation_type allow_imprecise_accumulation lhs_batching_dimensions lhs_component_count "
    "lhs_contracting_dimensions lhs_precision_type num_primitive_operations precision_config rhs_batching_dimensions rhs_component_count "
    "rhs_contracting_dimensions rhs_precision_type",
    "mesh": "mesh sym_name",
    "dynamic_broadcast_in_dim": "broadcast_dimensions known_expanding_dimensions known_nonexpanding_dimensions",
    "dynamic_conv": f"{_CONV} precision_config rhs_dilation window_reversal window_strides",
    "dynamic_gather": "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims start_index_map",
    "dynamic_gather_v2": "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims operand_batching_dims start_index_map "
    "start_indices_batching_dims",
    "dynamic_iota": "iota_dimension",
    "dynamic_slice": "slice_sizes",
    "einsum": "einsum_config",
    "fft": "fft_length fft_type",
    "func": "arg_attrs function_type res_attrs sym_name sym_visibility",
    "gather": "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims slice_sizes start_index_map",
    "gather_v2": "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims operand_batching_dims slice_sizes start_index_map "
    "start_indices_batching_dims",
    "get_dimension_size": "dimension",
    "get_tuple_element": "index",
    "iota": "iota_dimension",
    "manual_computation": "in_shardings manual_axes out_shardings",
    "map": "dimensions",
    "pad": "edge_padding_high edge_padding_low interior_padding",
    "reduce": "dimensions",
    "reduce_precision": "exponent_bits mantissa_bits",
    "reduce_scatter": f"channel_id {_GROUPS} scatter_dimension use_global_device_ids",
    "reduce_window": "base_dilations padding window_dilations window_dimensions window_strides",
    "reverse": "dimensions",
    "rng": "rng_distribution",
    "rng_bit_generator": "rng_algorithm",
    "scatter": "index_vector_dim indices_are_sorted inserted_window_dims scatter_dims_to_operand_dims unique_indices update_window_dims",
    "scatter_v2": "index_vector_dim indices_are_sorted input_batching_dims inserted_window_dims scatter_dims_to_operand_dims "
    "scatter_indices_batching_dims unique_indices update_window_dims",
    "select_and_scatter": "padding window_dimensions window_strides",
    "set_dimension_size": "dimension",
    "sharding_constraint": "sharding",
    "slice": "limit_indices start_indices strides",
    "sort": "dimension is_stable",
    "torch_index_select": "batch_dims dim",
    "transpose": "permutation",
    "triangular_solve": "left_side lower transpose_a unit_diagonal",
}
"""Attributes of VHLO's operations, in the order of the alphabet, in which bytecode has them (stablehlo/dialect/VhloOps.td)."""

_NAMES: Final = (
    "i1 complex bf16 f16 f32 f64 f8E4M3FN f8E5M2 function index i4 i8 i16 i32 i64 ui4 ui8 ui16 ui32 ui64 tensor tensor token tuple quant "
    "tensor witness f8E4M3FNUZ f8E5M2FNUZ f8E4M3B11FNUZ i2 ui2 tf32 none f8E3M4 f8E4M3 f4E2M1FN f6E2M3FN f6E3M2FN f8E8M0FNU"
)
_TYPES: Final = tuple(_NAMES.split(" "))
"""Types without parts, by their code; what has parts is read apart."""
_COMPLEX, _FUNCTION, _RANKED, _RANKED_ENCODED, _TUPLE, _QUANTISED, _UNRANKED = 1, 8, 20, 21, 23, 24, 25
_DIRECTIONS: Final = ("EQ", "NE", "GE", "GT", "LE", "LT")
_FFTS: Final = ("FFT", "IFFT", "RFFT", "IRFFT")
_DISTRIBUTIONS: Final = ("UNIFORM", "NORMAL")
_WORDS: Final[dict[int, tuple[str, ...]]] = {3: _DIRECTIONS, 7: _FFTS, 13: _DISTRIBUTIONS}
_BITS: Final[dict[str, tuple[int, str]]] = {"f64": (64, "d"), "f32": (32, "f"), "f16": (16, "e"), "bf16": (16, "")}


def read_bytecode(data: bytes) -> Module:
    """Return the module that bytecode holds; LoadError where it does not have the form."""
    try:
        return _Reader(data).module()
    except (IndexError, struct.error, ValueError, KeyError):
        raise refuse("the bytecode ends too early, or points outside of itself") from None
    except RecursionError:
        raise refuse("regions or attributes of the bytecode are nested too deeply") from None


class _Stream:
    """Bytes that are read from the front."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at, self.end = data, at, len(data)

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """Return a number of as many bytes as its first byte has zeros at its end, and one more."""
        data, at = self.data, self.at
        first = data[at]
        if first & 1:
            self.at = at + 1
            return first >> 1
        count = 9 if first == 0 else (first & -first).bit_length()
        self.at = at + count
        if self.at > self.end:
            raise IndexError
        return int.from_bytes(data[at + 1 : at + 9], "little") if count == 9 else int.from_bytes(data[at : at + count], "little") >> count

    def signed(self) -> int:
        """The sign is the last bit."""
        found = self.number()
        return (found >> 1) ^ -(found & 1)

    def count(self, what: str) -> int:
        """Return how many entries follow: each takes a byte at least."""
        found = self.number()
        if found > self.end - self.at:
            raise refuse(f"the bytecode has {found} {what} in {self.end - self.at} bytes")
        spend(found, what)
        return found

    def signed_numbers(self) -> list[int]:
        return [self.signed() for _ in range(self.count("numbers"))]

    def take(self, size: int) -> bytes:
        if size > self.end - self.at:
            raise IndexError
        claim(size, "constants")
        self.at += size
        return self.data[self.at - size : self.at]

    def section(self) -> tuple[int, bytes]:
        """Read the next section: its number and its content."""
        kind = self.byte()
        size = self.number()
        if kind & 0x80:
            self.number()  # the alignment
            while self.data[self.at] == 0xCB:
                self.at += 1
        return kind & 0x7F, self.take(size)

    @property
    def is_at_end(self) -> bool:
        return self.at >= self.end


class _Reader:
    """Reads the sections; attributes and types when they are asked for."""

    def __init__(self, data: bytes) -> None:
        stream = _Stream(data, len(MAGIC))
        self.version = stream.number()
        if self.version > _LAST_VERSION:
            raise refuse(f"bytecode of version {self.version} is not read, only up to {_LAST_VERSION}")
        end = data.index(b"\0", stream.at)
        self.producer = data[stream.at : end].decode("utf-8", "replace")
        stream.at = end + 1
        self.sections: dict[int, bytes] = {}
        while not stream.is_at_end and len(self.sections) < 16:
            try:
                kind, inside = stream.section()
            except (IndexError, LoadError):
                if {_STRINGS, _IR} <= set(self.sections):
                    break  # the artifact lies in a larger file
                raise
            self.sections.setdefault(kind, inside)
            if kind == _PROPERTIES or (kind == _STRINGS and self.version < _NATIVE):
                break
        if not {_STRINGS, _DIALECTS, _ATTRIBUTES, _OFFSETS, _IR} <= set(self.sections):
            raise refuse("the bytecode lacks a section")
        self.strings = self._read_strings()
        self.operators: list[tuple[str, str]] = []
        self.dialects = self._read_dialects()
        self.attribute_entries, self.type_entries = self._read_offsets()
        self.properties = self._read_properties()
        self._attributes: dict[int, Attribute] = {}
        self._types: dict[int, str] = {}
        self._places: dict[int, Place] = {}
        self._depth = 0
        self._values: list[str] = []
        self._made = 0
        self._next = 0

    def _read_strings(self) -> list[str]:
        """Lengths stand in front, of the last string first."""
        data = self.sections[_STRINGS]
        stream = _Stream(data)
        found: list[str] = []
        end = len(data)
        for size in [stream.number() for _ in range(stream.count("strings"))]:
            if size > end:
                raise IndexError
            found.append(data[end - size : end - 1].decode("utf-8", "replace"))
            end -= size
        found.reverse()
        return found

    def _read_dialects(self) -> list[str]:
        stream = _Stream(self.sections[_DIALECTS])
        found: list[str] = []
        for _ in range(stream.count("dialects")):
            number = stream.number()
            if self.version >= _VERSIONED:
                found.append(self.strings[number >> 1])
                if number & 1:
                    stream.section()
            else:
                found.append(self.strings[number])
        if self.version >= _BLOCK_SIZES:
            stream.number()
        while not stream.is_at_end:
            dialect = found[stream.number()]
            for _ in range(stream.count("operators")):
                number = stream.number()
                self.operators.append((dialect, self.strings[number >> 1 if self.version >= _NATIVE else number]))
        return found

    def _read_offsets(self) -> tuple[list[tuple[str, bool, bytes]], list[tuple[str, bool, bytes]]]:
        """Attributes, then types: dialect, whether it has a form of its own, bytes."""
        stream, data = _Stream(self.sections[_OFFSETS]), self.sections[_ATTRIBUTES]
        counts = [stream.number(), stream.number()]
        at = 0
        tables: list[list[tuple[str, bool, bytes]]] = []
        for count in counts:
            table: list[tuple[str, bool, bytes]] = []
            while len(table) < count:
                dialect = self.dialects[stream.number()]
                for _ in range(stream.count("attributes")):
                    number = stream.number()
                    size = number >> 1
                    table.append((dialect, bool(number & 1), data[at : at + size]))
                    at += size
            tables.append(table)
        return tables[0], tables[1]

    def _read_properties(self) -> list[bytes]:
        data = self.sections.get(_PROPERTIES, b"")
        if not data:
            return []
        stream = _Stream(data)
        return [stream.take(stream.number()) for _ in range(stream.count("properties"))]

    def attribute(self, index: int) -> Attribute:
        """Return an attribute by its number."""
        if index not in self._attributes:
            dialect, is_own, data = self.attribute_entries[index]
            self._depth += 1
            if self._depth > _MOST_DEPTH_OF_ATTRIBUTES:
                raise refuse("attributes of the bytecode are nested too deeply")
            spend(2, "attributes")
            if not is_own:
                self._attributes[index] = data.rstrip(b"\0").decode("utf-8", "replace")
            else:
                read = {"vhlo": self._of_vhlo, "builtin": self._of_builtin, "sdy": self._of_shardy}.get(dialect)
                self._attributes[index] = "" if read is None else read(_Stream(data))
            self._depth -= 1
        return self._attributes[index]

    def _of_vhlo(self, stream: _Stream) -> Attribute:
        code = stream.number()
        if code == 1:
            return tuple(self.attribute(stream.number()) for _ in range(stream.count("elements")))
        if code == 2:
            return bool(stream.number())
        if code in _WORDS:
            number = stream.number()
            return _WORDS[code][number] if number < len(_WORDS[code]) else str(number)
        if code == 6:
            pairs = [(stream.number(), stream.number()) for _ in range(stream.count("entries"))]
            return {str(self.attribute(key)): self.attribute(value) for key, value in pairs}
        if code == 8:
            return self._float(self.type(stream.number()), stream)
        if code == 9:
            return self._integer(self.type(stream.number()), stream)
        if code == 14:
            return self.strings[stream.number()]
        if code == 15:
            type_ = self.type(stream.number())
            return Dense(type_, data=stream.take(stream.number()))
        if code == 17:
            return self.type(stream.number())
        return ""

    def _of_shardy(self, stream: _Stream) -> Attribute:
        """Return what the text says of a mesh or a sharding. Codes are those of artifacts of jax 0.10; what follows the part that is read
        (priorities, replicated axes) cuts nothing."""
        code = stream.number()
        if code == _AXIS:
            return f'"{self.strings[stream.number()]}"={stream.signed()}'
        if code == _AXIS_USED:
            name = self.strings[stream.number()]
            return f'"{name}"' if stream.number() == 0 else f'"{name}":('  # a part of an axis is not read
        if code in (_MANUAL, _PER_VALUE):
            return tuple(self.attribute(stream.number()) for _ in range(stream.count("axes")))
        if code in (_MESH, _DIMENSION):
            listed = ", ".join(str(self.attribute(stream.number())) for _ in range(stream.count("axes")))
            return f"#sdy.mesh<[{listed}]>" if code == _MESH else f"{{{listed}}}"
        if code == _SHARDING:
            mesh = self.attribute(stream.number())
            return f"#sdy.sharding<@{mesh}, [{', '.join(str(self.attribute(stream.number())) for _ in range(stream.count('axes')))}]>"
        return ""

    def _of_builtin(self, stream: _Stream) -> Attribute:
        code = stream.number()
        if code == 0:
            return tuple(self.attribute(stream.number()) for _ in range(stream.count("elements")))
        if code == 1:
            pairs = [(stream.number(), stream.number()) for _ in range(stream.count("entries"))]
            return {str(self.attribute(key)): self.attribute(value) for key, value in pairs}
        if code in (2, 3):
            return self.strings[stream.number()]
        if code in (4, 5):
            return str(self.attribute(stream.number()))
        if code == 6:
            return self.type(stream.number())
        if code == 7:
            return True
        if code == 8:
            return self._integer(self.type(stream.number()), stream)
        if code == 9:
            return self._float(self.type(stream.number()), stream)
        if code == 18:
            type_ = self.type(stream.number())
            return Dense(type_, data=stream.take(stream.number()))
        return ""

    def _integer(self, type_: str, stream: _Stream) -> Attribute:
        width = int(digits) if (digits := type_.lstrip("usi")).isdigit() else 64
        if width <= 8:
            value = stream.byte()
            return bool(value) if width == 1 else value - 256 * (value >> 7) * (not type_.startswith("u"))
        return stream.signed()

    def _float(self, type_: str, stream: _Stream) -> float:
        width, code = _BITS.get(type_, (8, ""))
        bits = stream.byte() if width <= 8 else stream.signed() & ((1 << width) - 1)
        if type_ == "bf16":
            bits, code, width = bits << 16, "f", 32
        return float(struct.unpack(f"<{code}", bits.to_bytes(width // 8, "little"))[0]) if code else float(bits)

    def type(self, index: int) -> str:
        """Return the spelling of a type by its number."""
        found = self._types.get(index)
        if found is None:
            dialect, is_own, data = self.type_entries[index]
            self._depth += 1
            if self._depth > _MOST_DEPTH_OF_ATTRIBUTES:
                raise refuse("types of the bytecode are nested too deeply")
            if is_own:
                found = (self._type_of_vhlo if dialect == "vhlo" else self._type_of_builtin)(_Stream(data))
            else:
                found = data.rstrip(b"\0").decode("utf-8", "replace")
            self._depth -= 1
            self._types[index] = found
        return found

    def _type_of_vhlo(self, stream: _Stream) -> str:
        code = stream.number()
        if code == _COMPLEX:
            return f"complex<{self.type(stream.number())}>"
        if code in (_RANKED, _RANKED_ENCODED):
            bounds = self._bounds(stream.number()) if code == _RANKED_ENCODED else ""
            sizes = ["?" if size < 0 else str(size) for size in stream.signed_numbers()]
            return f"tensor<{'x'.join([*sizes, self.type(stream.number())])}{bounds}>"
        if code == _UNRANKED:
            return f"tensor<*x{self.type(stream.number())}>"
        if code == _TUPLE:
            return f"tuple<{', '.join(self.type(stream.number()) for _ in range(stream.count('types')))}>"
        if code == _FUNCTION:
            return "function"
        if code == _QUANTISED:
            stream.number()
            return f"!quant.uniform<{self.type(stream.number())}:{self.type(stream.number())}>"
        return _TYPES[code] if code < len(_TYPES) else f"!vhlo.type_{code}"

    def _bounds(self, index: int) -> str:
        """Limits of open sizes, which stand with the type."""
        dialect, is_own, data = self.attribute_entries[index]
        stream = _Stream(data)
        if not is_own or dialect != "vhlo" or stream.number() != 18:
            return ""
        return f", #stablehlo.bounds<{', '.join('?' if bound == _DYNAMIC else str(bound) for bound in stream.signed_numbers())}>"

    def _type_of_builtin(self, stream: _Stream) -> str:
        code = stream.number()
        if code == 0:
            number = stream.number()
            return f"{('i', 'si', 'ui')[min(number & 3, 2)]}{number >> 2}"
        plain = {1: "index", 2: "function", 3: "bf16", 4: "f16", 5: "f32", 6: "f64", 12: "none"}
        if code == 13:
            sizes = ["?" if size < 0 else str(size) for size in stream.signed_numbers()]
            return f"tensor<{'x'.join([*sizes, self.type(stream.number())])}>"
        return plain.get(code, f"!builtin.type_{code}")

    def place(self, index: int) -> Place:
        """Return a location by its number."""
        found = self._places.get(index)
        if found is None:
            self._places[index] = NOWHERE  # of one that leads to itself
            dialect, is_own, data = self.attribute_entries[index]
            found = self._read_place(_Stream(data)) if is_own and dialect == "builtin" else NOWHERE
            self._places[index] = found
        return found

    def _read_place(self, stream: _Stream) -> Place:
        code = stream.number()
        if code == 10:
            callee, caller = self.place(stream.number()), self.place(stream.number())
            return Place(callee.name, callee.file, callee.line, caller if caller.file else None) if callee.file else caller
        if code == 11:
            return Place("", str(self.attribute(stream.number())), stream.number())
        if code == 22:
            file = str(self.attribute(stream.number()))
            return Place("", file, stream.number() if stream.number() else 0)
        if code in (12, 13):
            places = [self.place(stream.number()) for _ in range(stream.count("places"))]
            best = next((place for place in places if place.file), NOWHERE)
            return Place(next((place.name for place in places if place.name), ""), best.file, best.line, best.caller)
        if code == 14:
            name, inner = str(self.attribute(stream.number())), self.place(stream.number())
            return Place(name, inner.file, inner.line, inner.caller)
        return NOWHERE

    def module(self) -> Module:
        """Return the whole module."""
        stream = _Stream(self.sections[_IR])
        top = Region()
        self._block(stream, top, 0)
        found = Module(version=self.producer.removeprefix("StableHLO_"))
        for operation in top.operations:
            if operation.short == "module":
                found.attributes.update(operation.attributes)
            for inner in [one for region in operation.regions for one in region.operations] or [operation]:
                if inner.short == "mesh":
                    found.meshes[str(inner.attributes.get("sym_name", ""))] = mesh_axes(str(inner.attributes.get("mesh", "")))
                elif inner.short == "func":
                    function = Function.of(inner)
                    found.functions[function.name] = function
        if not found.functions:
            raise refuse("the bytecode has no function of VHLO: it is not a portable artifact of StableHLO")
        return found

    def _block(self, stream: _Stream, region: Region, depth: int) -> None:
        number = stream.number()
        if number & 1:
            for _ in range(stream.count("arguments")):
                argument = stream.number()
                place = NOWHERE
                if self.version >= _BLOCK_SIZES:
                    type_ = self.type(argument >> 1)
                    place = self.place(stream.number()) if argument & 1 else NOWHERE
                else:
                    type_, place = self.type(argument), self.place(stream.number())
                region.arguments.append(self._define())
                region.types.append(type_)
                region.places.append(place)
            if self.version >= _USE_LISTS and stream.byte():
                self._use_lists(stream, len(region.arguments))
        for _ in range(number >> 1):
            spend(10, "operations")
            region.operations.append(self._operation(stream, depth))

    def _define(self) -> str:
        name = f"%{self._made}"
        self._values[self._next] = name
        self._made += 1
        self._next += 1
        return name

    def _operation(self, stream: _Stream, depth: int) -> Operation:
        dialect, name = self.operators[stream.number()]
        mask = stream.byte()
        made = Operation(f"{dialect}.{name}", [], [], {}, [], [], [], self.place(stream.number()))
        if mask & _HAS_ATTRS:
            attributes = self.attribute(stream.number())
            if isinstance(attributes, dict):
                made.attributes.update(attributes)
        if mask & _HAS_PROPERTIES:
            self._set_properties(made, self.properties[stream.number()])
        if mask & _HAS_RESULTS:
            made.result_types = [self.type(stream.number()) for _ in range(stream.count("results"))]
            made.results = [self._define() for _ in made.result_types]
        if mask & _HAS_OPERANDS:
            made.operands = [self._values[stream.number()] for _ in range(stream.count("operands"))]
        if mask & _HAS_SUCCESSORS:
            raise refuse("the bytecode has branches between blocks, which are not read")
        if mask & _HAS_USES:
            self._use_lists(stream, len(made.results))
        if mask & _HAS_REGIONS:
            number = stream.number()
            is_isolated = bool(number & 1)
            inner = stream
            if is_isolated and self.version >= _LAZY:
                inner = _Stream(stream.section()[1])
            for _ in range(number >> 1):
                made.regions.append(self._region(inner, is_isolated, depth + 1))
        if dialect in ("vhlo", "func"):
            made.name = f"{'stablehlo' if dialect == 'vhlo' else dialect}.{_VERSION.sub('', name)}"
        made.name_callee()
        return made

    def _region(self, stream: _Stream, is_isolated: bool, depth: int) -> Region:
        if depth > _DEEPEST:
            raise refuse("regions of the bytecode are nested too deeply")
        made = Region()
        blocks = stream.number()
        if blocks == 0:
            return made
        if blocks > 1:
            raise refuse("regions of several blocks are not read")
        count = stream.count("values")
        outer, at = self._values, self._next
        self._values = [""] * count if is_isolated else [*outer, *[""] * count]
        self._next = 0 if is_isolated else len(outer)
        self._block(stream, made, depth)
        self._values, self._next = outer, at
        return made

    def _use_lists(self, stream: _Stream, values: int) -> None:
        """Skip the orders of uses, which mean nothing here."""
        for _ in range(stream.count("orders of uses") if values > 1 else 1):
            if values > 1:
                stream.number()
            number = stream.number()
            for _ in range(number >> 1):
                stream.number()

    def _set_properties(self, made: Operation, data: bytes) -> None:
        stream = _Stream(data)
        name = made.name.partition(".")[2]
        plain = _VERSION.sub("", name)
        names = PROPERTIES.get(name, PROPERTIES.get(plain, "")).split()
        if plain == "module":
            return
        found: list[Attribute] = []
        while not stream.is_at_end:
            found.append(self.attribute(stream.number()))
        if len(found) == len(names):
            made.attributes.update({key: value for key, value in zip(names, found, strict=True) if value != "none"})
