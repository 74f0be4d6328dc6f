"""PyTorch's own counter, `torch.utils.flop_counter`."""

from __future__ import annotations

from torch.utils.flop_counter import FlopCounterMode

from irscope.peers.base import Counted
from irscope.peers.calls import Call, as_torch, count_calls, without_data
from irscope.session import Model


def count(model: Model) -> Counted:
    """FLOPs of each call, a multiply-add as 2."""

    def one(call: Call) -> float:
        with without_data():
            args = [as_torch(arg, "cpu") for arg in call.args]
            named = {key: as_torch(arg, "cpu") for key, arg in call.named.items()}
            with FlopCounterMode(display=False) as counter:
                call.function(*args, **named)
        return float(counter.get_total_flops())

    return count_calls(model, one, "FLOPs")
