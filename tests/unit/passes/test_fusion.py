"""Groups that one kernel could do: what they save, counted by hand, and what must not be fused."""

from __future__ import annotations

import pytest

from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.passes.patterns.fusion import Fusion, Fusions, Group
from irscope.passkit.manager import Manager
from tests.unit.passes.test_arch import WEIGHTS, attention

CONV = "nn.conv(%x, %w, _) {kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1}"
IMAGE = "input %x: f32[1,8,16,16]\nparam %w: f32[8,8,3,3]\n" + "\n".join(f"param %{name}: f32[8]" for name in ("g", "b", "m", "v"))
NORM = "%n: f32[1,8,16,16], _, _, _, _ = nn.batch_norm(%c, %g, %b, %m, %v) {training=false}"


def program(body: str, inputs: str) -> Program:
    return parse_program(f'irscope 1\nformat "pt2"\ngraph @main {{\n{inputs}\n{body}\n}}\n')


def fusions(body: str, inputs: str) -> Fusions:
    return Manager(program(body, inputs)).get(Fusion())


def groups(found: Fusions) -> dict[str, list[str]]:
    return {group.pattern: [node.name for node in group.nodes] for group in found.groups}


def convolution(after: str) -> Fusions:
    return fusions(
        f"%c: f32[1,8,16,16] = {CONV}\n%n: f32[1,8,16,16] = nn.batch_norm(%c, %g, %b, %m, %v) {{training=false}}\n{after}", IMAGE
    )


def test_a_convolution_takes_norm_and_activation_along() -> None:
    found = convolution("%r: f32[1,8,16,16] = nn.relu(%n)\nreturn %r")
    [group] = found.groups
    image, weight, channel = 4 * 8 * 256, 4 * 8 * 8 * 9, 4 * 8
    assert group.pattern == "conv-bn-act" and [node.name for node in group.nodes] == ["c", "n", "r"]
    assert group.unfused == (image + weight + image) + (image + 4 * channel + image) + 2 * image
    assert group.fused == image + weight + 4 * channel + image and group.saved == 4 * image
    assert group.launches == 2


def test_a_residual_sum_joins_when_it_reads_what_was_there_before() -> None:
    found = convolution("%a: f32[1,8,16,16] = math.add(%n, %n)\n%r: f32[1,8,16,16] = nn.relu(%a)\nreturn %r")
    assert groups(found) == {"conv-bn-act": ["c", "n", "a", "r"]}


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        ("%r: f32[1,8,16,16] = nn.relu(%n)\nreturn %r, %n", ["c", "n"]),
        ("%r: f32[1,8,16,16] = nn.relu(%n)\n%e: f32[1,8,16,16] = nn.softmax(%n) {axis=1}\nreturn %r, %e", ["c", "n"]),
        ("%r: f32[1,8,16,16] = nn.relu(%n)\n%s: f32[1,8,16,16] = math.neg(%c)\nreturn %r, %s", []),
    ],
    ids=["an output in between", "a second reader", "a reader of the convolution"],
)
def test_what_is_seen_outside_is_not_fused_away(after: str, kept: list[str]) -> None:
    found = groups(convolution(after))
    assert [name for names in found.values() for name in names] == kept


def test_a_write_in_between_forbids_it() -> None:
    """%x is overwritten after the product has read it, and before the activation would run."""
    inputs = "input %x: f32[8,16]\nparam %w: f32[16,16]"
    body = "%c: f32[8,16] = nn.linear(%x, %w, _)\n{between}%r: f32[8,16] = nn.relu(%c)\nreturn %r{also}"
    free = fusions(body.format(between="", also=""), inputs)
    assert groups(free) == {"gemm-act": ["c", "r"]}
    written = fusions(body.format(between="%z: f32[8,16] = math.exp(%x) {inplace=0}\n", also=", %z"), inputs)
    assert not written.groups and [(group.pattern, group.hindrance) for group in written.refused] == [
        ("gemm-act", "z must stay between (write after read)")
    ]


def test_an_activation_in_pieces_is_one() -> None:
    """GELU by its tanh formula reads the product three times, all inside the group."""
    body = """%c: f32[8,16] = nn.linear(%x, %w, %b)
        %p: f32[8,16] = math.pow(%c, _) {value=3}
        %q: f32[8,16] = math.mul(%p, _) {value=0.044715}
        %s: f32[8,16] = math.add(%c, %q)
        %t: f32[8,16] = math.tanh(%s)
        %u: f32[8,16] = math.add(%t, _) {value=1.0}
        %r: f32[8,16] = math.mul(%c, %u)
        %e: f32[8,4] = nn.linear(%r, %v, _)
        return %e"""
    found = fusions(body, "input %x: f32[8,16]\nparam %w: f32[16,16]\nparam %b: f32[16]\nparam %v: f32[4,16]")
    assert groups(found) == {"gemm-bias-act": ["c", "p", "q", "s", "t", "u", "r"]}


def test_attention_in_pieces_saves_its_scores() -> None:
    found = fusions(attention(), WEIGHTS)
    group = next(group for group in found.groups if group.pattern == "attention")
    state, scores = 4 * 2 * 8 * 16, 4 * 2 * 8 * 8
    assert [node.name for node in group.nodes] == ["p", "s", "a", "y"]
    assert group.fused == 4 * state and group.saved == 6 * scores


def test_a_norm_in_pieces() -> None:
    body = """%p: f32[8,16] = math.pow(%x, _) {value=2}
        %m: f32[8,1] = reduce.mean(%p) {axes=[-1], keepdims=true}
        %e: f32[8,1] = math.add(%m, _) {value=1e-06}
        %i: f32[8,1] = math.rsqrt(%e)
        %n: f32[8,16] = math.mul(%x, %i)
        %y: f32[8,16] = math.mul(%g, %n)
        %r: f32[8,16] = math.add(%x, %y)
        return %r"""
    found = fusions(body, "input %x: f32[8,16]\nparam %g: f32[16]")
    assert groups(found)["rms norm"][:6] == ["p", "m", "e", "i", "n", "y"]


def test_gates_and_rotations() -> None:
    gate = """%a: f32[8,16] = nn.linear(%x, %w, _)
        %b: f32[8,16] = nn.linear(%x, %v, _)
        %s: f32[8,16] = nn.silu(%a)
        %y: f32[8,16] = math.mul(%s, %b)
        return %y"""
    inputs = "input %x: f32[8,16]\nparam %w: f32[16,16]\nparam %v: f32[16,16]"
    assert groups(fusions(gate, inputs)) == {"swiglu": ["s", "y"]}
    pieces = gate.replace("%s: f32[8,16] = nn.silu(%a)", "%i: f32[8,16] = nn.sigmoid(%a)\n%s: f32[8,16] = math.mul(%i, %a)")
    assert groups(fusions(pieces, inputs))["swiglu"] == ["i", "s", "y"]
    rope = """%l: f32[2,8,8]<128,16,1> = view.slice(%x) {starts=[0], ends=[8], axes=[2], steps=[1]}
        %h: f32[2,8,8]<128,16,1> = view.slice(%x) {starts=[8], ends=[16], axes=[2], steps=[1]}
        %n: f32[2,8,8] = math.neg(%h)
        %r: f32[2,8,16] = tensor.concat(%n, %l) {axis=-1}
        %a: f32[2,8,16] = math.mul(%x, %cos)
        %b: f32[2,8,16] = math.mul(%r, %sin)
        %y: f32[2,8,16] = math.add(%a, %b)
        return %y"""
    found = fusions(rope, "input %x: f32[2,8,16]\ninput %cos: f32[8,16]\ninput %sin: f32[8,16]")
    assert groups(found) == {"rope": ["l", "h", "n", "r", "a", "b", "y"]}


def test_groups_do_not_overlap_and_save_no_more_than_is_moved() -> None:
    manager = Manager(program(attention(), WEIGHTS))
    [result] = manager.run([Fusion()])
    found: Fusions = result.value
    names = [node.name for group in found.groups for node in group.nodes]
    assert len(names) == len(set(names))
    summary = result.report().summary
    assert 0 < summary["saved_bytes"] < summary["moved_bytes"]  # type: ignore[operator]  # numbers
    assert all(isinstance(group, Group) and group.saved is not None for group in found.groups)


def test_symbols_stay_formulas() -> None:
    found = fusions(
        "%c: f32[n,16] = nn.linear(%x, %w, _)\n%r: f32[n,16] = nn.relu(%c)\nreturn %r", "input %x: f32[n,16]\nparam %w: f32[16,16]"
    )
    assert str(found.groups[0].saved) == "128*n"
