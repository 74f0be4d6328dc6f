"""Normalizations: results and statistics against PyTorch."""

from __future__ import annotations

import pytest

from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from irscope.ops.spec import RuleError
from tests.unit.ops.calls import agrees_with_symbols, cost, f32, infer, spec_of


def texts(*args: object, **kwargs: object) -> list[str]:
    return [str(type_) for type_ in infer(*args, **kwargs)]  # type: ignore[arg-type]


@pytest.mark.torch
def test_statistics_are_those_of_torch() -> None:
    import torch

    x, scale = torch.randn(4, 6, 5, 5), torch.randn(6)
    layer = torch.native_layer_norm(x, [5, 5], None, None, 1e-5)
    assert texts("nn.layer_norm", f32(4, 6, 5, 5), axis=2, results=3) == [str(f32(*t.shape)) for t in layer]
    group = torch.native_group_norm(x, scale, scale, 4, 6, 25, 3, 1e-5)
    assert texts("nn.group_norm", f32(4, 6, 5, 5), f32(6), f32(6), num_groups=3, results=3) == [str(f32(*t.shape)) for t in group]
    running = torch.zeros(6), torch.ones(6)
    for training in (True, False):
        batch = torch.native_batch_norm(x, scale, scale, *running, training, 0.1, 1e-5)
        statistics = "full" if training else "empty"
        types = (f32(4, 6, 5, 5), *(f32(6),) * 4)
        assert texts("nn.batch_norm", *types, statistics=statistics, results=3) == [str(f32(*t.shape)) for t in batch]


def test_training_writes_running_statistics() -> None:
    spec = spec_of("nn.batch_norm_training")
    assert [spec.schema.operands[index].name for index in spec.writes] == ["mean", "var"]
    assert spec_of("nn.batch_norm").writes == ()


def test_parameters_must_fit_the_channels() -> None:
    with pytest.raises(RuleError, match="one element a channel"):
        infer("nn.batch_norm", f32(2, 8, 4, 4), f32(6), f32(6), f32(6), f32(6))


def test_statistics_of_half_precision_are_kept_in_single() -> None:
    x = tensor(DType.F16, (2, 3, 8))
    assert texts("nn.layer_norm", x, stash_dtype=DType.F32, results=3) == ["f16[2,3,8]", "f32[2,3,1]", "f32[2,3,1]"]
    assert texts("nn.batch_norm", x, training=True, results=3) == ["f16[2,3,8]", "f32[3]", "f32[3]"]


def test_sizes_may_be_symbols() -> None:
    agrees_with_symbols("nn.layer_norm", f32(2, 3, 5), f32(5), axis=1, results=3)
    agrees_with_symbols("nn.skip_layer_norm", f32(2, 3, 5), f32(1, 3, 5), f32(5), results=4)
    agrees_with_symbols("nn.rms_norm", f32(2, 3, 5), f32(5), results=2)
    batch = symbol("B")
    found = cost("nn.layer_norm", f32(batch, 64), f32(64), f32(64))
    assert found is not None
    assert (found.elementwise, found.transcendental) == (batch * 320, batch)


def test_embedding_reads_only_the_rows_it_needs() -> None:
    ids = tensor(DType.I32, (2, 5))
    found = cost("nn.embed_layer_norm", ids, None, f32(30000, 8), f32(512, 8), None, f32(8), f32(8))
    assert found is not None
    assert found.read == 2 * 10 * 8 * 4 + 10 * 4
