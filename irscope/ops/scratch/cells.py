"""Recurrent cells, and operators whose libraries do not publish the size of their workspace."""

from __future__ import annotations

from irscope.ir.dims import Dim, product
from irscope.ops.scratch.gemm import linear, matmul
from irscope.ops.scratch.recorder import Scratch, count, rule, sizes, transposed, width
from irscope.ops.spec import Temporaries, results_only


@rule
def lstm_cell_rule(scratch: Scratch) -> None:
    """Gates of input and state, and a copy of all gates that only a backward pass reads."""
    gates = _gates(scratch, with_bias=False)
    call = scratch.call
    workspace = scratch.take("gates kept for a backward pass", _batch(scratch) * (4 * width(call.tensor("x").dtype)))
    scratch.result()
    scratch.result(1)
    scratch.drop(workspace, *reversed(gates))


@rule
def gru_cell_rule(scratch: Scratch) -> None:
    gates = _gates(scratch, with_bias=False)
    workspace = scratch.take("gates kept for a backward pass", _batch(scratch) * (5 * width(scratch.call.tensor("x").dtype)))
    scratch.result()
    scratch.drop(workspace, *reversed(gates))


@rule
def rnn_cell_rule(scratch: Scratch) -> None:
    gates = _gates(scratch, with_bias=True)
    scratch.result()
    scratch.drop(*reversed(gates))


def _batch(scratch: Scratch) -> Dim:
    return count(scratch.call.tensor("h"))


def _gates(scratch: Scratch, with_bias: bool) -> list[str]:
    call = scratch.call
    names: list[str] = []
    for operand, weight, bias, label in (("x", "w_x", "b_x", "gates of the input"), ("h", "w_h", "b_h", "gates of the state")):
        if with_bias:
            names.append(linear(scratch, call.tensor(operand), call.tensor(weight), call.maybe(bias), False, label))
        else:
            names.append(matmul(scratch, call.tensor(operand), transposed(call.tensor(weight)), make=label))
    return names


@rule
def cdist_rule(scratch: Scratch) -> None:
    """Euclidean distances of many points: norms beside the points, then one product of matrices."""
    call = scratch.call
    a, b = call.tensor("a"), call.tensor("b")
    rows, others = sizes(a)[-2], sizes(b)[-2]
    many = any(not isinstance(size, int) or size > 25 for size in (rows, others))
    if call.attr("p") != 2 or not (many or call.attr("compute_mode") == "use_mm_for_euclid_dist"):
        scratch.result()
        return
    _euclidean(scratch)


def _euclidean(scratch: Scratch) -> None:
    call = scratch.call
    sides = (("left", call.tensor("a")), ("right", call.tensor("b")))
    size = width(call.tensor("a").dtype)
    columns: dict[str, list[str]] = {}
    for name, one in sides:
        squares = scratch.take(f"squares of the {name}", count(one) * size)
        norms = scratch.take(f"norms of the {name}", product(sizes(one)[:-1]) * size)
        scratch.drop(squares)
        columns[name] = [norms, scratch.take(f"ones for the {name}", product(sizes(one)[:-1]) * size)]
    scaled = scratch.take("scaled left", count(call.tensor("a")) * size)
    wide = [one.with_shape((*sizes(one)[:-1], sizes(one)[-1] + 2)) for _, one in sides]
    first = scratch.take("left with norms", count(wide[0]) * size)
    scratch.drop(*reversed(columns["left"]), scaled)
    second = scratch.take("right with norms", count(wide[1]) * size)
    scratch.drop(*columns["right"])
    matmul(scratch, wide[0], transposed(wide[1]))
    scratch.drop(second, first)


def library_rule(reason: str) -> Temporaries:
    """A rule of an operator whose library tells the size of its workspace only on the device."""

    @rule
    def write(scratch: Scratch) -> None:
        scratch.events.extend(results_only(scratch.call))
        scratch.unknown("library workspace", reason)

    return write


recurrent_rule = library_rule("cuDNN tells the size of a recurrent network's workspace and packed weights only on the device")
fft_rule = library_rule("cuFFT tells the size of its workspace only on the device")
solver_rule = library_rule("cuSOLVER tells the size of its workspace only on the device")
