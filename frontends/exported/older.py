"""Weights of the layout that torch.export wrote before torch 2.8: checkpoints, each an archive inside the archive."""

from __future__ import annotations

from contextlib import ExitStack

from irscope.frontends.torch_common.archive import Archive
from irscope.frontends.torch_common.payloads import pickled_payload
from irscope.frontends.torch_common.pickled import PickledTensor, read_pickle
from irscope.ir.places import Payload
from irscope.ir.types import TensorType

PROGRAM = "serialized_exported_program.json"
# Before torch 2.2 these were called .json, though they never were.
_CHECKPOINTS = ("serialized_state_dict.pt", "serialized_state_dict.json", "serialized_constants.pt", "serialized_constants.json")


class OlderWeights:
    """Where parameters, buffers and constants are."""

    def __init__(self, archive: Archive) -> None:
        self._found: dict[str, tuple[Archive, PickledTensor]] = {}
        self._open = ExitStack()
        for name in _CHECKPOINTS:
            if name in archive and archive.entries[name].size:
                inner = self._open.enter_context(archive.inner(name))
                state = read_pickle(inner.read("data.pkl"), f"{archive.path}:{name}").root
                if isinstance(state, dict):
                    self._found.update({str(fqn): (inner, item) for fqn, item in state.items() if isinstance(item, PickledTensor)})

    def payload(self, fqn: str, type_: TensorType, small: bool) -> Payload | None:
        """Where the values are; small constants are read. None where the archive does not say."""
        found = self._found.get(fqn)
        return pickled_payload(found[0], "data/", found[1], small) if found is not None else None

    def close(self) -> None:
        """Close the inner archives."""
        self._open.close()
