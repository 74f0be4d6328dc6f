"""What kind of model a graph is, written small, and with the traps that names or single operators would be."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

import irscope
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.passes.patterns.arch import Arch, Kind
from irscope.passkit.manager import Manager

CONV = "kernel_shape=[{k}, {k}], strides=[{s}, {s}], pads=[{p}, {p}, {p}, {p}], dilations=[1, 1], groups={g}"


def program(body: str, inputs: str) -> Program:
    return parse_program(f'irscope 1\nformat "pt2"\ngraph @main {{\n{inputs}\n{body}\n}}\n')


def kind(made: Program) -> Kind:
    return Manager(made).get(Arch())


def conv(name: str, operand: str, weight: str, shape: str, k: int = 3, s: int = 1, p: int = 1, g: int = 1) -> str:
    return f"%{name}: f32[{shape}] = nn.conv(%{operand}, %{weight}, _) {{{CONV.format(k=k, s=s, p=p, g=g)}}}"


def attention(mask: str = "", scores: str = "s") -> str:
    """Queries, keys and values from one state by three weights; product, scale, mask, softmax, product."""
    return f"""%q: f32[2,8,16] = nn.linear(%x, %wq, _)
        %k: f32[2,8,16] = nn.linear(%x, %wk, _)
        %v: f32[2,8,16] = nn.linear(%x, %wv, _)
        %t: f32[2,16,8]<128,1,16> = view.transpose(%k) {{axis0=1, axis1=2}}
        %p: f32[2,8,8] = math.matmul(%q, %t)
        %s: f32[2,8,8] = math.mul(%p, _) {{value=0.25}}
        {mask}
        %a: f32[2,8,8] = nn.softmax(%{scores}) {{axis=-1}}
        %y: f32[2,8,16] = math.matmul(%a, %v)
        return %y"""


WEIGHTS = "input %x: f32[2,8,16]\n" + "\n".join(f"param %{name}: f32[16,16]" for name in ("wq", "wk", "wv"))


def test_attention_is_found_in_pieces() -> None:
    found = kind(program(attention(), WEIGHTS))
    assert found.verdict.family == "encoder transformer" and found.verdict.confidence == "high"
    [one] = found.features.attention
    assert [node.op for node in one.nodes] == ["math.matmul", "math.mul", "nn.softmax", "math.matmul"]
    assert not one.causal and not one.crosses and "decomposed attention" in found.verdict.traits


CAUSAL = {
    "a triangle that is cut": (
        "%o: f32[8,8] = tensor.full() {shape=[8, 8], fill=-inf, dtype=<f32>}\n"
        "%m: f32[8,8] = tensor.trilu(%o) {k=1, upper=true}\n%z: f32[2,8,8] = math.add(%s, %m)",
        "",
    ),
    "positions that are compared": (
        "%i: i64[8] = tensor.arange() {start=0, limit=8, delta=1, dtype=<i64>}\n%r: i64[8,1] = view.unsqueeze(%i) {axes=[1]}\n"
        "%c: bool[8,8] = compare.less_equal(%i, %r)\n%z: f32[2,8,8] = math.where(%c, %s, _) {y_value=-inf}",
        "",
    ),
    "a difference of positions": (
        "%i: i64[8] = tensor.arange() {start=0, limit=8, delta=1, dtype=<i64>}\n%r: i64[8,1] = view.unsqueeze(%i) {axes=[1]}\n"
        "%d: i64[8,8] = math.sub(%i, %r)\n%c: bool[8,8] = compare.less_equal(%d, _) {value=0}\n"
        "%z: f32[2,8,8] = math.where(%c, %s, _) {y_value=-inf}",
        "",
    ),
    "a constant": (
        "%z: f32[2,8,8] = math.add(%s, %m)",
        f"buffer %m: f32[8,8] = [{', '.join('-inf' if column > row else '0.0' for row in range(8) for column in range(8))}]",
    ),
}


@pytest.mark.parametrize("how", CAUSAL)
def test_a_causal_mask_is_found_however_it_is_made(how: str) -> None:
    mask, constant = CAUSAL[how]
    found = kind(program(attention(mask, "z"), f"{WEIGHTS}\n{constant}"))
    assert found.verdict.family == "decoder-only transformer" and found.features.attention[0].causal
    assert found.features.attention[0].why_causal


def mask_in_a_file(folder: Path, path: Path) -> Kind:
    """A model in a folder whose mask is said to lie in a file."""
    model = folder / "model.irs"
    inputs = f"{WEIGHTS}\nbuffer %m: f32[8,8] = file({json.dumps(str(path))}, 0, 256)"
    body = attention("%z: f32[2,8,8] = math.add(%s, %m)", "z")
    model.write_text(f'irscope 1\nformat "pt2"\ngraph @main {{\n{inputs}\n{body}\n}}\n')
    return irscope.load(model).manager.get(Arch())


def test_a_mask_is_read_from_the_models_folder_and_nowhere_else(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        values = [float("-inf") if column > row else 0.0 for row in range(8) for column in range(8)]
        (folder / "mask.bin").write_bytes(struct.pack("<64f", *values))
    assert mask_in_a_file(inside, inside / "mask.bin").features.attention[0].causal
    assert not mask_in_a_file(inside, outside / "mask.bin").features.attention[0].causal
    assert not mask_in_a_file(inside, inside / "missing.bin").features.attention[0].causal


NOT_CAUSAL = {
    "an input": ("%z: f32[2,8,8] = math.add(%s, %m)", "input %m: f32[8,8]"),
    "a bias that is learned": ("%z: f32[2,8,8] = math.add(%s, %m)", "param %m: f32[8,8]"),
    "a constant that is not a triangle": (
        "%z: f32[2,8,8] = math.add(%s, %m)",
        f"buffer %m: f32[8,8] = [{', '.join('-inf' if column == row else '0.0' for row in range(8) for column in range(8))}]",
    ),
    "lengths of sequences": (
        "%i: i64[8] = tensor.arange() {start=0, limit=8, delta=1, dtype=<i64>}\n%c: bool[8] = compare.less(%i, %n)\n"
        "%z: f32[2,8,8] = math.where(%c, %s, _) {y_value=-inf}",
        "input %n: i64[]",
    ),
}


@pytest.mark.parametrize("what", NOT_CAUSAL)
def test_another_mask_is_not_causal(what: str) -> None:
    mask, operand = NOT_CAUSAL[what]
    inputs = f"{operand}\n{WEIGHTS}" if operand.startswith("input") else f"{WEIGHTS}\n{operand}"
    assert not kind(program(attention(mask, "z"), inputs)).features.attention[0].causal


def test_a_softmax_alone_is_no_attention() -> None:
    body = """%h: f32[2,8,16] = nn.linear(%x, %wq, _)
        %a: f32[2,8,16] = nn.softmax(%h) {axis=-1}
        %y: f32[2,8,16] = nn.linear(%a, %wk, _)
        return %y"""
    found = kind(program(body, WEIGHTS))
    assert not found.features.attention and found.verdict.family == "multilayer perceptron"


def test_keys_of_another_state_cross() -> None:
    body = attention().replace("nn.linear(%x, %wk", "nn.linear(%e, %wk").replace("nn.linear(%x, %wv", "nn.linear(%e, %wv")
    found = kind(program(body, WEIGHTS.replace("\n", "\ninput %e: f32[2,8,16]\n", 1)))
    assert found.features.attention[0].crosses


def test_shortened_keys_are_no_other_sequence() -> None:
    body = attention().replace("%k: f32[2,8,16] = nn.linear(%x,", "%e: f32[2,8,16] = nn.relu(%x)\n%k: f32[2,8,16] = nn.linear(%e,")
    assert not kind(program(body, WEIGHTS)).features.attention[0].crosses


def test_convolutions_make_a_convolutional_network() -> None:
    body = "\n".join([conv("a", "x", "w1", "1,8,16,16"), conv("b", "a", "w2", "1,8,16,16"), conv("c", "b", "w2", "1,8,16,16"), "return %c"])
    made = program(body, "input %x: f32[1,3,16,16]\nparam %w1: f32[8,3,3,3]\nparam %w2: f32[8,8,3,3]")
    assert kind(made).verdict.family == "convolutional network"


def test_channels_for_themselves_are_seen() -> None:
    body = "\n".join([conv("a", "x", "d", "1,8,16,16", g=8), conv("b", "a", "w", "1,8,16,16", k=1, p=0), "return %b"])
    found = kind(program(body, "input %x: f32[1,8,16,16]\nparam %d: f32[8,1,3,3]\nparam %w: f32[8,8,1,1]"))
    assert found.verdict.family == "depthwise-separable convolutional network"
    assert [node.name for node in found.features.depthwise] == ["a"] and "depthwise" in found.verdict.traits


def test_recurrence_is_seen_as_an_operator_and_written_out() -> None:
    steps = ["%h0: f32[2,16] = math.tanh(%x)"]
    for step in range(5):
        steps += [f"%p{step}: f32[2,16] = nn.linear(%h{step}, %w, _)", f"%h{step + 1}: f32[2,16] = math.tanh(%p{step})"]
    found = kind(program("\n".join([*steps, "return %h5"]), "input %x: f32[2,16]\nparam %w: f32[16,16]"))
    assert found.verdict.family == "recurrent network" and len(found.features.recurrent) == 5
    beside = [f"%p{step}: f32[2,16] = nn.linear(%x, %w, _)" for step in range(5)]
    found = kind(program("\n".join([*beside, "return %p4"]), "input %x: f32[2,16]\nparam %w: f32[16,16]"))
    assert found.verdict.family == "multilayer perceptron", "one weight used side by side is no recurrence"


def test_a_state_that_is_carried_is_a_scan() -> None:
    steps = ["%h0: f32[2,16] = nn.linear(%x, %w, _)"]
    for step in range(6):
        steps += [f"%m{step}: f32[2,16] = math.mul(%h{step}, %d)", f"%h{step + 1}: f32[2,16] = math.add(%m{step}, %x)"]
    made = program("\n".join([*steps, "return %h6"]), "input %x: f32[2,16]\ninput %d: f32[2,16]\nparam %w: f32[16,16]")
    assert kind(made).verdict.family == "state-space model"


def test_the_best_scores_choose_experts() -> None:
    body = """%g: f32[8,4] = nn.linear(%x, %router, _)
        %s: f32[8,4] = nn.softmax(%g) {axis=-1}
        %w: f32[8,2], %i: i64[8,2] = tensor.topk(%s) {k=2, axis=-1, largest=true, sorted=true}
        %o: i64[8,2,4] = tensor.one_hot(%i) {depth=4}
        %y: f32[8,16] = nn.linear(%x, %expert, _)
        return %y, %o, %w"""
    found = kind(program(body, "input %x: f32[8,16]\nparam %router: f32[4,16]\nparam %expert: f32[16,16]"))
    assert found.verdict.family == "mixture-of-experts multilayer perceptron"
    only_topk = body.replace("%o: i64[8,2,4] = tensor.one_hot(%i) {depth=4}", "%o: i64[8,2] = math.neg(%i)")
    assert (
        "experts" not in kind(program(only_topk, "input %x: f32[8,16]\nparam %router: f32[4,16]\nparam %expert: f32[16,16]")).verdict.traits
    )


def test_nothing_learned_is_no_network() -> None:
    found = kind(program("%y: f32[4] = math.exp(%x)\nreturn %y", "input %x: f32[4]"))
    assert (found.verdict.family, found.verdict.confidence) == ("no network", "low")


def test_the_report_names_the_proof() -> None:
    [result] = Manager(program(attention(), WEIGHTS)).run([Arch()])
    report = result.report()
    assert report.summary["family"] == "encoder transformer"
    rows = {row[0]: row for row in report.tables[0].rows()}
    assert rows["attention, product - softmax - product"][1] == 1
    assert rows["attention, product - softmax - product"][3] == "a"


_SCALES = "const %s: f32[] = [0.01]\nconst %z: u8[] = [128]"
_WINDOW = CONV.format(k=3, s=1, p=1, g=1)
TWINS = {
    "floats": "%{y}: f32[1,8,16,16] = nn.conv(%{x}, %w{n}, _) {{{window}}}",
    "weights as codes": "%v{n}: f32[8,8,3,3] = quant.dequantize(%c{n}, %s, %z)\n"
    "%{y}: f32[1,8,16,16] = nn.conv(%{x}, %v{n}, _) {{{window}}}",
    "integers with 32-bit sums": "%q{n}: u8[1,8,16,16], %t{n}: f32[], %u{n}: u8[] = quant.dynamic_quantize(%{x})\n"
    "%i{n}: i32[1,8,16,16] = nn.conv_integer(%q{n}, %c{n}, %u{n}, %z) {{{window}}}\n"
    "%f{n}: f32[1,8,16,16] = tensor.cast(%i{n}) {{dtype=<f32>}}\n%{y}: f32[1,8,16,16] = math.mul(%f{n}, %t{n})",
    "codes with a coded result": "%q{n}: u8[1,8,16,16] = quant.quantize(%{x}, %s, %z)\n"
    "%o{n}: u8[1,8,16,16] = nn.qlinear_conv(%q{n}, %s, %z, %c{n}, %s, %z, %s, %z, _) {{{window}}}\n"
    "%{y}: f32[1,8,16,16] = quant.dequantize(%o{n}, %s, %z)",
}


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_a_convolutional_network_of_integers_is_one(twin: str) -> None:
    steps = []
    for n in range(4):
        steps.append(twin.format(x=f"r{n}" if n else "x", y=f"y{n}", n=n, window=_WINDOW))
        steps.append(f"%r{n + 1}: f32[1,8,16,16] = nn.relu(%y{n})")
    weights = "".join(f"param %{kind}{n}: {dtype}[8,8,3,3]\n" for n in range(4) for kind, dtype in (("w", "f32"), ("c", "u8")))
    made = program("\n".join(steps) + "\nreturn %r4", f"input %x: f32[1,8,16,16]\n{weights}{_SCALES}")
    found = kind(made)
    assert (found.verdict.family, found.verdict.confidence) == ("convolutional network", "high")
    assert len(found.features.convolutions) == len(found.features.spatial) == 4


def test_attention_of_codes_is_attention() -> None:
    product = "%{y}: u8[{shape}] = quant.qlinear_matmul(%{a}, %s, %z, %{b}, %s, %z, %s, %z)"
    steps = ["%x0: u8[2,8,16] = quant.quantize(%x, %s, %z)"]
    steps += [product.format(y=name, a="x0", b=f"w{name}", shape="2,8,16") for name in "qkv"]
    steps += [
        "%t: u8[2,16,8]<128,1,16> = view.transpose(%k) {axis0=1, axis1=2}",
        product.format(y="p", a="q", b="t", shape="2,8,8"),
        "%d: f32[2,8,8] = quant.dequantize(%p, %s, %z)",
        "%e: f32[2,8,8] = nn.softmax(%d) {axis=-1}",
        "%a: u8[2,8,8] = quant.quantize(%e, %s, %z)",
        product.format(y="y", a="a", b="v", shape="2,8,16"),
    ]
    inputs = "input %x: f32[2,8,16]\n" + "".join(f"param %w{name}: u8[16,16]\n" for name in "qkv") + _SCALES
    found = kind(program("\n".join((*steps, "return %y")), inputs))
    assert found.verdict.family == "encoder transformer" and len(found.features.attention) == 1
    assert len(found.features.products) == 3, "products with weights, and not those of activations with scales"
    as_one = [*steps[:6], '%a: u8[2,8,8] = quant.qlinear_unary(%p, %s, %z, %s, %z) {op="softmax"}', steps[-1], "return %y"]
    assert len(kind(program("\n".join(as_one), inputs)).features.attention) == 1
