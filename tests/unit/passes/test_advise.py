"""Advice on models of which it is known what is wrong with them, and on one with nothing wrong."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from irscope.errors import PassError, UsageError
from irscope.passes.advice import finding as findings
from irscope.passes.advice.advise import AdviceList, Advise
from irscope.passes.advice.finding import Enquiry, Finding, Source, add_source
from irscope.passes.cost.roofline import Roofline
from irscope.passes.patterns.fusion import Fusion
from irscope.passes.weights.values import QuantizeError
from irscope.passkit.manager import Manager
from tests.unit.passes.pruned_models import built, conv_bn_relu, mlp, normal, program

CLEAN = ("%y: bf16[16,64] = nn.linear(%x, %w, _)\nreturn %y", "input %x: bf16[16,64]\nparam %w: bf16[64,64]")

OFFERED = Source("offered", "What a package knows.", lambda _: [Finding("take a plugin", "it is installed", "exact")])


def advice(manager: Manager, **options: object) -> AdviceList:
    return manager.get(Advise(**options))  # type: ignore[arg-type]  # whatever a test gives


def on(result: AdviceList, topic: str) -> list[Finding]:
    return [ranked.finding for ranked in result.ranked if ranked.source.name == topic]


def one_on(manager: Manager, topic: str, **options: object) -> Finding:
    [finding] = on(advice(manager, topics=(topic,), **options), topic)
    return finding


def test_a_model_with_nothing_wrong_gets_no_advice() -> None:
    manager = program(*CLEAN)
    report = manager.run_one(Advise()).report()
    assert report.summary["findings_count"] == 0 and not report.partial
    [missing] = report.tables
    assert missing.title == "not examined" and missing.cells("topic") == ["duplicates", "precision", "pruning"]
    assert any(note.startswith("nothing to advise on memory, fusion") for note in report.notes)


def test_values_are_read_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from irscope.passes.weights import values as weight_values

    def refuse(*_: object) -> None:
        raise AssertionError("values were read")

    monkeypatch.setattr(weight_values, "open_weights", refuse)
    result = advice(built(*mlp(16)))
    assert set(result.not_asked) == {"duplicates", "precision", "pruning"} and not result.failed


def test_fusion_saves_what_the_pass_says_and_the_time_of_its_launches() -> None:
    manager = program(*conv_bn_relu(16, 32))
    found = on(advice(manager, topics=("fusion",)), "fusion")
    groups = manager.get(Fusion()).groups
    assert sorted(one.what for one in found) == ["fuse conv-act, 1 time", "fuse conv-bn-act, 1 time"]
    assert sorted(one.moved for one in found) == sorted(group.saved for group in groups)  # type: ignore[type-var]  # integers
    # So small a model takes nothing but launches, one microsecond each by the published figures.
    bounds = manager.get(Roofline())
    launch = bounds.nodes[0].launch
    assert sorted(one.seconds or 0 for one in found) == pytest.approx([launch, 2 * launch])


def test_the_largest_share_comes_first_and_shares_are_of_something() -> None:
    result = advice(built(*conv_bn_relu(16, 32), {"w": normal(16, 3, 3, 3, zero={0: [1]})}), values=True)
    shares = [ranked.share for ranked in result.ranked]
    assert shares == sorted(shares, reverse=True) and 0 < shares[0] <= 1
    weights, activations, seconds = (result.wholes[name] for name in ("weights", "activations", "seconds"))
    assert isinstance(weights, int) and isinstance(activations, int) and isinstance(seconds, float)
    for ranked in result.ranked:
        memory, time = ranked.finding.memory, ranked.finding.seconds
        least = (memory if isinstance(memory, int) else 0) / (weights + activations)
        assert ranked.share == pytest.approx(max(least, (time or 0) / seconds, 0)) or time is None


def test_rows_and_columns_of_zeros_could_go() -> None:
    manager = built(*mlp(16), {"w": normal(16, 8, zero={0: [2, 3, 4], 1: [0]}), "b": np.ones(16)})
    [found] = on(advice(manager, values=True, topics=("pruning",)), "pruning")
    assert found.what == "remove 4 rows and columns of zeros" and found.sure == "bound" and not found.is_lossless
    assert found.memory == 4 * (16 * 8 - 13 * 7) and found.flops is None


def test_matrices_that_are_sparse_in_fours_could_be_stored_so() -> None:
    sparse = normal(64, 64)
    sparse[:, 0::4] = sparse[:, 3::4] = 0
    manager = built("%y: f32[16,64] = nn.linear(%x, %w, _)\nreturn %y", "input %x: f32[16,64]\nparam %w: f32[64,64]", {"w": sparse})
    [found] = [one for one in on(advice(manager, values=True), "pruning") if "2:4" in one.what]
    assert found.memory == 64 * 64 * 4 - 64 * 64 // 2 * 34 // 8


def test_precision_tells_what_its_pass_says() -> None:
    manager = built(*mlp(128), {"b": np.zeros(128)})
    found = on(advice(manager, values=True, target=18.0), "precision")
    errors = manager.get(QuantizeError(target=18.0))
    assert sum(one.memory for one in found if isinstance(one.memory, int)) == sum(
        4 * tensor.count - (tensor.bytes or 0) for tensor in errors.tensors if tensor.bytes
    )
    assert not any(one.is_lossless for one in found)


def test_weights_that_are_there_twice_or_for_nothing() -> None:
    inputs = "input %x: f32[4,8]\nparam %w: f32[8,8]\nparam %v: f32[8,8]\nparam %u: f32[8,16]\nparam %o: f32[8]\nparam %p: f32[8]"
    body = "%a: f32[4,8] = nn.linear(%x, %w, %o)\n%b: f32[4,8] = nn.sigmoid(%a)\n%y: f32[4,8] = nn.linear(%b, %v, %p)\nreturn %y"
    same = normal(8, 8)
    manager = built(body, inputs, {"w": same, "v": same, "o": np.ones(8), "p": np.ones(8)})
    unused = one_on(manager, "unused")
    assert unused.memory == 512 and [weight.name for weight in unused.weights] == ["u"] and unused.sure == "exact"
    equal, constant = on(advice(manager, values=True, topics=("duplicates",)), "duplicates")
    assert equal.memory == 256 and [weight.name for weight in equal.weights] == ["w", "v"]
    assert constant.memory == 32 and constant.what == "keep 1 constant once instead of 2 weights"


def test_a_checkpoint_has_no_graph_that_could_read_its_weights() -> None:
    manager = built("return", "param %w: f32[64,64]", {})
    result = advice(manager, values=True)
    assert not result.failed and {ranked.source.name for ranked in result.ranked} == {"precision"}


def test_casts_that_go_forth_and_back() -> None:
    body = (
        "%h: f16[64,16] = tensor.cast(%x) {to=<f16>}\n%s: f32[64,16] = tensor.cast(%h) {to=<f32>}\n%y: f32[64,16] = nn.gelu(%s)\nreturn %y"
    )
    casts = one_on(program(body, "input %x: f32[64,16]"), "casts")
    assert [node.name for node in casts.nodes] == ["h", "s"] and casts.sure == "bound"
    assert casts.moved == 2 * (64 * 16 * 4 + 64 * 16 * 2)


@pytest.mark.parametrize("last", ["%c: f32[64,16] = view.contiguous(%t)", "%c: f32[1024] = view.reshape(%t) {shape=[1024]}"])
def test_copies_that_only_change_the_order(last: str) -> None:
    body = "%t: f32[64,16] = view.transpose(%x) {axis0=0, axis1=1}\n" + last + "\n%y: f32[1024] = nn.gelu(%c)\nreturn %y"
    copies = one_on(program(body, "input %x: f32[16,64]", "torchscript"), "layout")
    assert [node.name for node in copies.nodes] == ["c"] and copies.moved == 2 * 4096 and copies.flops == 0
    assert (copies.seconds or 0) > 0 and copies.sure == "bound"


def test_what_shares_its_storage_is_no_copy() -> None:
    body = "%c: f32[16,64] = view.contiguous(%x)\n%r: f32[1024] = view.reshape(%c) {shape=[1024]}\n%y: f32[1024] = nn.gelu(%r)\nreturn %y"
    assert not on(advice(program(body, "input %x: f32[16,64]"), topics=("layout",)), "layout")
    transposed = "%t: f32[64,16] = view.permute(%x) {perm=[1, 0]}\n%y: f32[64,16] = nn.gelu(%t)\nreturn %y"
    assert not on(advice(program(transposed, "input %x: f32[16,64]"), topics=("layout",)), "layout")
    assert one_on(program(transposed, "input %x: f32[16,64]", "onnx"), "layout").moved == 2 * 4096


def test_work_that_nobody_needs() -> None:
    body = "%d: f32[2,8] = math.exp(%x)\n%e: f32[2,8] = math.neg(%d)\n%y: f32[2,8] = nn.relu(%x)\nreturn %y"
    finding = one_on(program(body), "dead-code")
    assert [node.name for node in finding.nodes] == ["d", "e"] and finding.flops == 32 and finding.moved == 4 * 64


def test_half_the_width_halves_weights_and_the_time_of_what_moves() -> None:
    manager = program("%y: f32[512,4096] = nn.linear(%x, %w, _)\nreturn %y", "input %x: f32[512,4096]\nparam %w: f32[4096,4096]")
    finding = one_on(manager, "half-width")
    halves = manager.get(Roofline()).seconds - manager.get(Roofline(dtype="bf16")).seconds
    assert finding.seconds == pytest.approx(halves) and not finding.is_lossless and finding.sure == "bound"
    assert isinstance(finding.memory, int) and finding.memory >= 4096 * 4096 * 2


def test_sizes_that_are_no_multiples_of_eight() -> None:
    finding = one_on(program("%y: f32[2,13] = nn.linear(%x, %w, _)\nreturn %y", "input %x: f32[2,16]\nparam %w: f32[13,16]"), "alignment")
    assert finding.memory == -(3 * 16 * 4) and finding.seconds is None


def test_open_symbols_get_typical_sizes_which_are_told() -> None:
    body = "%h: f32[batch,64] = nn.linear(%x, %w, _)\n%y: f32[batch,64] = nn.relu(%h)\nreturn %y"
    manager = program(body, "input %x: f32[batch,64]\nparam %w: f32[64,64]")
    report = manager.run_one(Advise()).report()
    assert any("batch=64" in note for note in report.notes)
    assert all(ranked.share > 0 for ranked in advice(manager).ranked)


def test_without_values_the_list_is_partial_but_complete_elsewhere() -> None:
    manager = program(*conv_bn_relu(16, 32))
    report = manager.run_one(Advise(values=True)).report()
    result = advice(manager, values=True)
    assert report.partial and set(result.failed) == {"duplicates", "precision", "pruning"} and on(result, "fusion")
    assert "IRS471" in {diagnostic.code for diagnostic in report.diagnostics}


@pytest.fixture
def own_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "SOURCES", {})
    monkeypatch.setattr("irscope.passes.advice.advise.SOURCES", findings.SOURCES)


@pytest.mark.usefixtures("own_sources")
def test_others_can_add_sources() -> None:
    def find(ask: Enquiry) -> Iterator[Finding]:
        yield Finding("do better", f"on {ask.clock.device.name}", "exact", memory=4096)

    source = Source("mine", "What I know.", find)
    add_source(source)
    add_source(source)
    [found] = on(advice(program(*CLEAN), topics=("mine",)), "mine")
    assert found.what == "do better"
    with pytest.raises(UsageError, match="two sources"):
        add_source(Source("mine", "Something else.", find))


@pytest.mark.usefixtures("own_sources")
def test_installed_packages_can_offer_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("good", "tests.unit.passes.test_advise:OFFERED", "irscope.advice"),
        EntryPoint("broken", "no_such_package:SOURCE", "irscope.advice"),
        EntryPoint("odd", "tests.unit.passes.test_advise:CLEAN", "irscope.advice"),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points if group == "irscope.advice" else [])
    manager = program(*CLEAN)
    report = manager.run_one(Advise()).report()
    assert [one.what for one in on(advice(manager), "offered")] == ["take a plugin"]
    said = [diagnostic.message for diagnostic in report.diagnostics if diagnostic.code == "IRS101"]
    assert len(said) == 2 and "no_such_package" in said[0] and "not a Source but tuple" in said[1]


@pytest.mark.usefixtures("own_sources")
def test_a_source_that_fails_does_not_silence_the_others() -> None:
    def fail(_: Enquiry) -> Iterator[Finding]:
        raise PassError("this cannot be known")

    add_source(Source("broken", "Nothing.", fail))
    result = advice(program(*conv_bn_relu(16, 32)))
    assert result.failed == {"broken": "this cannot be known"} and on(result, "fusion")


@pytest.mark.parametrize(("options", "text"), [({"topics": ("fusoin",)}, "no advice on"), ({"device": "no-such-device"}, "device")])
def test_what_does_not_exist_is_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        advice(program(*CLEAN), **options)


def test_a_model_of_integers_is_not_told_to_run_in_bf16() -> None:
    body = "%v: f32[64,64] = quant.dequantize(%c, %s, %z)\n%m: f32[16,64] = nn.linear(%x, %v, %b)\n%y: f32[16,64] = nn.relu(%m)\nreturn %y"
    inputs = "input %x: f32[16,64]\nparam %c: i8[64,64]\nparam %b: f32[64]\nconst %s: f32[] = [0.01]\nconst %z: i8[] = [0]"
    assert not on(advice(program(body, inputs)), "half-width")
