"""Dead channels are put in by hand: which of them can go, why others cannot, and what is saved against the smaller program."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.passes.pruning.prune_report import PruneReport
from tests.unit.passes.pruned_models import built, check_costs, normal, program, pruned, reasons, shapes

CONV = "{{kernel_shape=[{k}, {k}], strides=[1, 1], pads=[{p}, {p}, {p}, {p}], dilations=[1, 1], groups={g}}}"
WIDE, POINT = CONV.format(k=3, p=1, g=1), CONV.format(k=1, p=0, g=1)


def conv_bn_relu(c: int, d: int) -> tuple[str, str]:
    inputs = (
        f"input %x: f32[1,3,8,8]\nparam %w: f32[{c},3,3,3]\nparam %v: f32[{d},{c},3,3]\nparam %h: f32[10,{d}]\n"
        f"param %g: f32[{c}]\nparam %b: f32[{c}]\nbuffer %m: f32[{c}]\nbuffer %s: f32[{c}]"
    )
    body = (
        f"%c: f32[1,{c},8,8] = nn.conv(%x, %w, _) {WIDE}\n"
        f"%n: f32[1,{c},8,8] = nn.batch_norm(%c, %g, %b, %m, %s) {{training=false}}\n"
        f"%r: f32[1,{c},8,8] = nn.relu(%n)\n"
        f"%e: f32[1,{d},8,8] = nn.conv(%r, %v, _) {WIDE}\n"
        f"%q: f32[1,{d},8,8] = nn.relu(%e)\n"
        f"%a: f32[1,{d}] = reduce.mean(%q, _) {{axes=[2, 3], keepdims=false}}\n"
        f"%y: f32[1,10] = nn.linear(%a, %h, _)\nreturn %y"
    )
    return body, inputs


def test_dead_filters_go_with_their_norm_and_the_columns_behind() -> None:
    bias = np.full(16, 0.5, np.float32)
    bias[[1, 4, 5, 9]] = [0.0, -1.0, 0.0, 2.0]
    # A row of zeros leaves what the norm adds: nothing below zero is left by the activation, but 2 is.
    values = {
        "w": normal(16, 3, 3, 3, zero={0: [1, 4, 5, 9]}),
        "v": normal(32, 16, 3, 3, zero={0: [0, 31]}),
        "b": bias,
        "m": np.zeros(16),
        "s": np.ones(16),
    }
    before = built(*conv_bn_relu(16, 32), values)
    result = pruned(before)
    assert shapes(result) == {
        "w": (13, 3, 3, 3), "g": (13,), "b": (13,), "m": (13,), "s": (13,), "v": (30, 13, 3, 3), "h": (10, 30)
    }  # fmt: skip
    assert result.removable == 5
    assert reasons(result)["w", "rows"] == (4, 3, "e reads it")
    assert result.savings.weight_bytes == 4 * (3 * 27 + 3 * 4 + (32 * 16 - 30 * 13) * 9 + 20)
    check_costs(result, before, program(*conv_bn_relu(13, 30)))


def test_a_scale_of_zero_makes_a_filter_needless() -> None:
    scale = np.ones(16)
    scale[3] = 0
    bias = np.zeros(16)
    result = pruned(built(*conv_bn_relu(16, 32), {"g": scale, "b": bias, "m": np.zeros(16), "s": np.ones(16)}))
    assert shapes(result)["w"] == (15, 3, 3, 3)


def test_columns_of_zeros_make_the_rows_in_front_needless() -> None:
    result = pruned(built(*conv_bn_relu(16, 32), {"s": np.ones(16), "v": normal(32, 16, 3, 3, zero={1: [2, 7]})}))
    assert shapes(result)["w"] == (14, 3, 3, 3)
    assert reasons(result)["v", "columns"] == (2, 2, "")


def mlp(hidden: int, act: str = "nn.relu", bias: bool = True) -> tuple[str, str]:
    inputs = f"input %x: f32[2,8]\nparam %w: f32[{hidden},8]\nparam %b: f32[{hidden}]\nparam %v: f32[6,{hidden}]"
    body = (
        f"%h: f32[2,{hidden}] = nn.linear(%x, %w, {'%b' if bias else '_'})\n"
        f"%a: f32[2,{hidden}] = {act}(%h)\n"
        "%y: f32[2,6] = nn.linear(%a, %v, _)\nreturn %y"
    )
    return body, inputs


@pytest.mark.parametrize("act", ["nn.relu", "nn.gelu", "nn.silu", "math.tanh", "nn.leaky_relu", "nn.hardswish"])
def test_what_is_zero_stays_zero_through_these(act: str) -> None:
    bias = np.ones(16)
    bias[[0, 15]] = 0
    before = built(*mlp(16, act), {"w": normal(16, 8, zero={0: [0, 15]}), "b": bias})
    result = pruned(before)
    assert shapes(result) == {"w": (14, 8), "b": (14,), "v": (6, 14)}
    check_costs(result, before, program(*mlp(14, act)))


def test_a_constant_that_is_not_zero_could_only_be_folded() -> None:
    bias = np.ones(16)
    bias[4] = -3
    result = pruned(built(*mlp(16), {"w": normal(16, 8, zero={0: [2, 4]}), "b": bias}))
    assert shapes(result)["w"] == (15, 8), "below zero the activation makes it zero"
    assert result.foldable == 1
    sigmoid = pruned(built(*mlp(16, "nn.sigmoid"), {"w": normal(16, 8, zero={0: [2, 4]}), "b": np.zeros(16)}))
    assert shapes(sigmoid) == {} and sigmoid.foldable == 2


def test_one_channel_stays_where_none_does_anything() -> None:
    result = pruned(built(*mlp(16), {"w": np.zeros((16, 8)), "b": np.zeros(16)}))
    assert shapes(result) == {"w": (1, 8), "b": (1,), "v": (6, 1)}


def test_what_the_model_returns_stays() -> None:
    result = pruned(built(*mlp(16), {"v": normal(6, 16, zero={0: [1]})}))
    assert shapes(result) == {}
    assert reasons(result)["v", "rows"] == (1, 0, "the model returns it")


def test_what_reads_the_input_stays() -> None:
    result = pruned(built(*mlp(16), {"w": normal(16, 8, zero={1: [1, 2]})}))
    assert reasons(result)["w", "columns"] == (2, 0, "h joins it with something that cannot shrink")


def residual(c: int) -> tuple[str, str]:
    square = "\n".join(f"param %{name}: f32[{c},{c},1,1]" for name in "vu")
    inputs = f"input %x: f32[1,3,8,8]\nparam %w: f32[{c},3,1,1]\n{square}\nparam %h: f32[4,{c},1,1]"
    body = (
        f"%s: f32[1,{c},8,8] = nn.conv(%x, %w, _) {POINT}\n"
        f"%i: f32[1,{c},8,8] = nn.conv(%s, %v, _) {POINT}\n"
        f"%r: f32[1,{c},8,8] = nn.relu(%i)\n"
        f"%o: f32[1,{c},8,8] = nn.conv(%r, %u, _) {POINT}\n"
        f"%a: f32[1,{c},8,8] = math.add(%s, %o)\n"
        f"%y: f32[1,4,8,8] = nn.conv(%a, %h, _) {POINT}\nreturn %y"
    )
    return body, inputs


def test_a_residual_sum_keeps_what_only_one_of_its_operands_lacks() -> None:
    result = pruned(built(*residual(16), {"u": normal(16, 16, 1, 1, zero={0: [3]})}))
    assert shapes(result) == {} and reasons(result)["u", "rows"] == (1, 0, "i reads it")


def test_a_residual_sum_loses_what_both_of_its_operands_lack() -> None:
    both = {"w": normal(16, 3, 1, 1, zero={0: [3]}), "u": normal(16, 16, 1, 1, zero={0: [3]})}
    result = pruned(built(*residual(16), both))
    assert shapes(result) == {"w": (15, 3, 1, 1), "v": (16, 15, 1, 1), "u": (15, 16, 1, 1), "h": (4, 15, 1, 1)}


def depthwise(c: int, groups: int, per: int = 1) -> tuple[str, str]:
    inputs = f"input %x: f32[1,3,8,8]\nparam %w: f32[{c},3,1,1]\nparam %d: f32[{c},{per},3,3]\nparam %h: f32[4,{c},1,1]"
    body = (
        f"%s: f32[1,{c},8,8] = nn.conv(%x, %w, _) {POINT}\n"
        f"%i: f32[1,{c},8,8] = nn.conv(%s, %d, _) {CONV.format(k=3, p=1, g=groups)}\n"
        f"%r: f32[1,{c},8,8] = nn.relu6(%i)\n"
        f"%y: f32[1,4,8,8] = nn.conv(%r, %h, _) {POINT}\nreturn %y"
    )
    return body, inputs


def test_depthwise_convolutions_pass_dead_channels_on() -> None:
    before = built(*depthwise(16, 16), {"w": normal(16, 3, 1, 1, zero={0: [2]}), "d": normal(16, 1, 3, 3, zero={0: [7]})})
    result = pruned(before)
    assert shapes(result) == {"w": (14, 3, 1, 1), "d": (14, 1, 3, 3), "h": (4, 14, 1, 1)}
    check_costs(result, before, program(*depthwise(14, 14)))


def test_grouped_convolutions_lose_whole_groups() -> None:
    one = pruned(built(*depthwise(16, 4, 4), {"d": normal(16, 4, 3, 3, zero={0: [5]})}))
    assert shapes(one) == {}
    before = built(*depthwise(16, 4, 4), {"d": normal(16, 4, 3, 3, zero={0: [4, 5, 6, 7]})})
    result = pruned(before)
    assert shapes(result) == {"w": (12, 3, 1, 1), "d": (12, 4, 3, 3), "h": (4, 12, 1, 1)}
    check_costs(result, before, program(*depthwise(12, 3, 4)))


def flat(c: int) -> tuple[str, str]:
    inputs = f"input %x: f32[N,3,4,4]\nparam %w: f32[{c},3,1,1]\nparam %h: f32[5,{c * 4}]"
    body = (
        f"%s: f32[N,{c},4,4] = nn.conv(%x, %w, _) {POINT}\n"
        f"%p: f32[N,{c},2,2] = nn.max_pool(%s) {{kernel_shape=[2, 2], strides=[2, 2]}}\n"
        f"%f: f32[N,{c * 4}] = view.flatten(%p) {{start=1}}\n"
        "%y: f32[N,5] = nn.linear(%f, %h, _)\nreturn %y"
    )
    return body, inputs


def test_a_channel_becomes_a_block_of_columns_when_it_is_flattened() -> None:
    before = built(*flat(8), {"w": normal(8, 3, 1, 1, zero={0: [0, 6]})})
    result = pruned(before)
    assert shapes(result) == {"w": (6, 3, 1, 1), "h": (5, 24)}
    check_costs(result, before, program(*flat(6)))
    columns = normal(5, 32, zero={1: [4, 5, 6]})
    assert shapes(pruned(built(*flat(8), {"h": columns}))) == {}, "one column of the block is read"


def joined(c: int, d: int) -> tuple[str, str]:
    inputs = f"input %x: f32[2,8]\nparam %w: f32[{c},8]\nparam %v: f32[{d},8]\nparam %h: f32[{c + d},5]"
    body = (
        f"%a: f32[2,{c}] = nn.linear(%x, %w, _)\n%b: f32[2,{d}] = nn.linear(%x, %v, _)\n"
        f"%j: f32[2,{c + d}] = tensor.concat(%a, %b) {{axis=1}}\n%y: f32[2,5] = math.matmul(%j, %h)\nreturn %y"
    )
    return body, inputs


def test_joined_parts_shrink_each_by_themselves() -> None:
    before = built(*joined(6, 4), {"w": normal(6, 8, zero={0: [5]}), "v": normal(4, 8, zero={0: [0, 1]})})
    result = pruned(before)
    assert shapes(result) == {"w": (5, 8), "v": (2, 8), "h": (7, 5)}
    check_costs(result, before, program(*joined(5, 2)))


def gated(c: int) -> tuple[str, str]:
    inputs = f"input %x: f32[2,8]\nparam %w: f32[{c},8]\nparam %v: f32[{c},8]\nparam %h: f32[8,{c}]"
    body = (
        f"%a: f32[2,{c}] = nn.linear(%x, %w, _)\n%g: f32[2,{c}] = nn.silu(%a)\n%b: f32[2,{c}] = nn.linear(%x, %v, _)\n"
        f"%m: f32[2,{c}] = math.mul(%g, %b)\n%y: f32[2,8] = nn.linear(%m, %h, _)\nreturn %y"
    )
    return body, inputs


def test_either_factor_of_a_gate_makes_the_channel_needless() -> None:
    before = built(*gated(16), {"w": normal(16, 8, zero={0: [1]}), "v": normal(16, 8, zero={0: [2]})})
    result = pruned(before)
    assert shapes(result) == {"w": (14, 8), "v": (14, 8), "h": (8, 14)}
    check_costs(result, before, program(*gated(14)))


def fused_gate(c: int) -> tuple[str, str]:
    inputs = f"input %x: f32[2,3,8]\nparam %w: f32[{2 * c},8]\nparam %h: f32[{c},8]"
    body = (
        f"%a: f32[2,3,{2 * c}] = nn.linear(%x, %w, _)\n%g: f32[2,3,{c}], %u: f32[2,3,{c}] = view.chunk(%a) {{chunks=2, axis=-1}}\n"
        f"%s: f32[2,3,{c}] = nn.silu(%g)\n%m: f32[2,3,{c}] = math.mul(%s, %u)\n%y: f32[2,3,8] = math.matmul(%m, %h)\nreturn %y"
    )
    return body, inputs


def test_halves_of_one_product_that_are_multiplied_shrink_together() -> None:
    before = built(*fused_gate(16), {"w": normal(32, 8, zero={0: [1, 18]})})
    result = pruned(before)
    assert shapes(result) == {"w": (28, 8), "h": (14, 8)}
    check_costs(result, before, program(*fused_gate(14)))


def stacked(c: int, d: int) -> tuple[str, str]:
    shapes = {"w": f"8,{c}", "b": f"{c}", "v": f"{d},{c}", "e": f"{d}", "h": f"5,{d}"}
    inputs = "input %x: f32[4,8]\n" + "\n".join(f"param %{name}: f32[{shape}]" for name, shape in shapes.items())
    body = (
        f"%a: f32[4,{c}] = math.gemm(%x, %w, %b)\n%r: f32[4,{c}] = nn.relu(%a)\n"
        f"%t: f32[{c},{d}] = view.transpose(%v) {{axis0=0, axis1=1}}\n%p: f32[4,{d}] = math.addmm(%e, %r, %t)\n"
        f"%q: f32[4,{d}] = math.tanh(%p)\n%y: f32[4,5] = math.gemm(%q, %h, _) {{trans_b=true}}\nreturn %y"
    )
    return body, inputs


def test_products_of_other_forms_do_the_same() -> None:
    bias, other = np.full(12, -1.0), np.zeros(16)
    values = {"w": normal(8, 12, zero={1: [0, 4]}), "b": bias, "v": normal(16, 12, zero={0: [2]}), "e": other}
    before = built(*stacked(12, 16), values)
    result = pruned(before)
    assert shapes(result) == {"w": (8, 10), "b": (10,), "v": (15, 10), "e": (15,), "h": (5, 15)}
    check_costs(result, before, program(*stacked(10, 15)))


@pytest.mark.parametrize(
    "op",
    [
        "%n: f32[2,16] = nn.layer_norm(%a, _, _)",
        "%n: f32[2,16] = nn.softmax(%a) {axis=-1}",
        "%n: f32[2,16] = math.add(%a, %z)",
        "%n: f32[2,16] = tensor.flip(%a) {axes=[1]}",
    ],
    ids=["norm", "softmax", "input", "no rule"],
)
def test_what_mixes_channels_keeps_them(op: str) -> None:
    inputs = "input %x: f32[2,8]\ninput %z: f32[2,16]\nparam %w: f32[16,8]\nparam %h: f32[4,16]"
    body = f"%a: f32[2,16] = nn.linear(%x, %w, _)\n{op}\n%y: f32[2,4] = nn.linear(%n, %h, _)\nreturn %y"
    result = pruned(built(body, inputs, {"w": normal(16, 8, zero={0: [1]}), "h": normal(4, 16, zero={1: [1]})}))
    assert shapes(result) == {} and reasons(result)["w", "rows"][1:] != (1, "")


def test_what_is_written_over_is_not_trusted() -> None:
    inputs = "input %x: f32[2,8]\nparam %w: f32[16,8]\nparam %h: f32[4,16]"
    body = (
        "%a: f32[2,16] = nn.linear(%x, %w, _)\n%v: f32[2,16] = view.alias(%a)\n"
        "%i: f32[2,16] = math.add(%a) {value=1.0, inplace=0}\n%y: f32[2,4] = nn.linear(%v, %h, _)\nreturn %y"
    )
    result = pruned(built(body, inputs, {"w": normal(16, 8, zero={0: [1]})}))
    assert shapes(result) == {}


def test_a_buffer_that_each_run_writes_is_not_what_the_file_says() -> None:
    inputs = "input %x: f32[2,8]\nparam %w: f32[16,8]\nparam %h: f32[4,16]\nbuffer %s: f32[16]\nbuffer %t: f32[]"
    body = (
        "%a: f32[2,16] = nn.linear(%x, %w, _)\n%m: f32[2,16] = math.mul(%a, %{})\n%y: f32[2,4] = nn.linear(%m, %h, _)\n"
        "%o: {} = math.add(%{}) {{value=1.0, inplace=0}}\nreturn %y"
    )
    off = {"s": np.zeros(16), "t": np.zeros(())}
    assert shapes(pruned(built(body.format("s", "f32[16]", "s"), inputs, off))) == {}
    assert shapes(pruned(built(body.format("t", "f32[]", "t"), inputs, off))) == {}
    assert shapes(pruned(built(body.format("s", "f32[]", "t"), inputs, off))) != {}


def test_slices_that_go_backwards_keep_sizes_but_not_places() -> None:
    inputs = "input %x: f32[2,8]\nparam %w: f32[16,8]\nparam %h: f32[4,16]"
    body = (
        "%a: f32[2,16] = nn.linear(%x, %w, _)\n%f: f32[2,16] = view.slice(%a) {{starts=[{}], ends=[{}], axes=[1], steps=[{}]}}\n"
        "%y: f32[2,4] = nn.linear(%f, %h, _)\nreturn %y"
    )
    dead = {"w": normal(16, 8, zero={0: [1]})}
    assert shapes(pruned(built(body.format(-1, -100, -1), inputs, dead))) == {}
    assert shapes(pruned(built(body.format(0, 100, 1), inputs, dead))) == {"w": (15, 8), "h": (4, 15)}


def test_a_weight_that_is_used_twice_shrinks_for_both_or_not_at_all() -> None:
    inputs = "input %x: f32[2,8]\nparam %w: f32[16,8]\nparam %h: f32[4,16]"
    body = "%a: f32[2,16] = nn.linear(%x, %w, _)\n%b: f32[2,16] = nn.linear(%x, %w, _)\n%y: f32[2,4] = nn.linear(%a, %h, _)\nreturn %y{}"
    dead = {"w": normal(16, 8, zero={0: [1]})}
    second = "\n%z: f32[2,4] = nn.linear(%b, %h, _)\nreturn %y, %z"
    assert shapes(pruned(built(body.replace("\nreturn %y{}", second), inputs, dead))) == {"w": (15, 8), "h": (4, 15)}
    assert shapes(pruned(built(body.format(", %b"), inputs, dead))) == {}


def test_without_values_nothing_is_dead_and_the_report_is_partial() -> None:
    manager = program(*mlp(16))
    report = manager.run_one(PruneReport()).report()
    result = pruned(manager)
    assert not result.savings.weights and len(result.unread) == 3 and report.partial
    assert {diagnostic.code for diagnostic in report.diagnostics} == {"IRS440"}


def test_a_weight_without_values_keeps_only_its_own_channels() -> None:
    body, inputs = conv_bn_relu(16, 32)
    manager = built(body, inputs, {"v": normal(32, 16, 3, 3, zero={0: [0]}), "s": np.ones(16)})
    graph = manager.program.graph
    missing = next(weight for weight in graph.weights if weight.name == "w")
    del graph.data[missing]
    result = pruned(manager)
    assert shapes(result) == {"v": (31, 16, 3, 3), "h": (10, 31)} and list(result.unread) == [missing]


def test_a_checkpoint_tells_what_is_dead_but_not_what_it_would_save() -> None:
    result = pruned(
        built("return", "param %w: f32[8,8]\nparam %v: f32[4]", {"w": normal(8, 8, zero={0: [1, 2], 1: [5]}), "v": np.zeros(4)})
    )
    why = "no graph shows what reads it"
    assert reasons(result) == {("w", "rows"): (2, 0, why), ("w", "columns"): (1, 0, why)} and not result.savings.weights
