"""Answers of `torch.cuda` about the simulated device, for models that query it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from irscope.devices import Target


@contextmanager
def card(target: Target) -> Iterator[None]:
    """Within the context `torch.cuda` queries are answered as on the target device."""
    answers = _answers(target)
    before = {name: getattr(torch.cuda, name) for name in answers}
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(torch.cuda, name, function)


def _answers(target: Target) -> dict[str, Callable[..., Any]]:
    device = target.device
    capability = device.capability or (0, 0)
    properties = SimpleNamespace(
        name=device.title,
        major=capability[0],
        minor=capability[1],
        total_memory=device.memory_bytes or 0,
        multi_processor_count=device.multiprocessors or 0,
    )
    return {
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_capability": lambda device=None: capability,
        "get_device_name": lambda device=None: properties.name,
        "get_device_properties": lambda device=None: properties,
        "is_bf16_supported": lambda including_emulation=True: capability >= (8, 0),
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
    }
