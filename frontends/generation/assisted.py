"""Generation with an assistant: a smaller model proposes tokens, and the model checks them in one forward.

How many of them are right is a matter of values. What is asked for is answered: an assistant that is sure of all its tokens, of which a
given number is accepted in each round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any, Final

from irscope.diagnostics import DiagnosticSink
from irscope.errors import UsageError
from irscope.frontends.generation.program import _ENDS, DRAFT, Generator, Run, Wish, cache_of
from irscope.frontends.simulation.process import Process
from irscope.memory.growth import Rhythm

_MASK_KEYS: Final = 8
"""`mem_eff_alignment` of PyTorch's attention.cpp."""
_LOOPS: Final = frozenset(("_sample", "_assisted_decoding"))
"""Functions of `generate` that make tokens until all sequences have ended."""


class AssistedGenerator(Generator):
    """Loads both models, and generates with them. A step is a round: tokens that the assistant proposes, and one forward of the model."""

    def __init__(self, process: Process, wish: Wish, sink: DiagnosticSink) -> None:
        super().__init__(process, wish, sink)
        self.draft = draft = self._load(replace(wish, model=wish.assistant, base="", scheme=None), sink)
        self.loaded.end = draft.end
        texts = [one.module.config.get_text_config() for one in (self.loaded, draft)]
        if texts[0].vocab_size != texts[1].vocab_size:
            raise UsageError(
                f"the assistant knows {texts[1].vocab_size:,} tokens, the model {texts[0].vocab_size:,}",
                code="IRS696",
                where=wish.assistant,
                hint="with other tokenizers what it proposes is translated through text, which is not simulated",
            )
        draft.module.generation_config.num_assistant_tokens = wish.candidates
        # A mask of several queries is padded to whole multiples of some keys, unless it is one: rounds with the same remainder are alike.
        # What a round leaves is given back within three.
        self.rhythm = Rhythm(max(_MASK_KEYS // math.gcd(_MASK_KEYS, wish.accepted + 1), 4), own=4, alike=2)
        self._rounds = 0
        """Until generation is stopped; below zero for all."""
        self._caches: dict[str, Any] = {}
        self._run: Run | None = None
        self._helper = draft.module

    def run(self, prompt: int, new: int, forwards: int = 0) -> Run:
        """The same in rounds: `forwards` are those behind the one that reads the prompt. The end of the last round is marked as well."""
        self._rounds = forwards or -1
        self._caches = {}
        hook = self._helper.register_forward_hook(lambda _, args, kwargs, out: self._seen(DRAFT, kwargs, out), with_kwargs=True)
        try:
            return super().run(prompt, new, forwards)
        finally:
            hook.remove()

    def _options(self) -> dict[str, Any]:
        return {"assistant_model": self._helper}

    def _before_forward(self, found: Run) -> None:
        self._forwards += 1
        self._run = found

    def _after_forward(self, found: Run, kwargs: Mapping[str, Any], out: Any) -> None:
        self._seen("", kwargs, out)

    def _seen(self, whose: str, kwargs: Mapping[str, Any], out: Any) -> None:
        self._caches[whose] = cache_of(kwargs, out)

    def _ends(self, loop: FrameType) -> bool:
        """Whether a loop ends here; a round of the outer one is over."""
        length, most = loop.f_locals["input_ids"].shape[1], loop.f_locals["stopping_criteria"].max_length
        if loop.f_code.co_name == "_sample":
            return bool(length >= most)
        found = self._run
        assert found is not None
        self._begin_step(found)
        found.cache = [
            replace(layer, kind=f"{whose}{layer.kind}") for whose, cache in sorted(self._caches.items()) for layer in self._layers(cache)
        ]
        self._rounds -= 1
        over = bool(length >= most) or self._rounds == -1
        if over:
            self._caches.clear()  # they are given back when `generate` returns
        return over

    def _answer(self, frame: FrameType, value: Any) -> Any:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        if file.endswith("generation/stopping_criteria.py") and isinstance(value, float):
            return 1.0  # how sure the assistant is
        if not file.endswith("generation/utils.py"):
            return super()._answer(frame, value)
        if function == "generate":
            return isinstance(value, bool)  # the attention mask is all ones
        if function == "_speculative_sampling":
            locals_ = frame.f_locals
            right = min(self._wish.accepted, locals_["candidate_length"])
            if not isinstance(value, bool):
                return right
            return right > 0 if "p_prime" in locals_ else right < locals_["gamma"]
        loop = next((one for one in _frames(frame) if one.f_code.co_name in _LOOPS), None)
        if loop is None:
            return value
        if isinstance(value, bool):
            return self._ends(loop) if function in _ENDS else value
        return min(self._wish.accepted, loop.f_locals["candidate_length"]) + 1 if function == "_assisted_decoding" else value


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
