"""Grades an engine over the suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import process_time

from tests.tools.conformance.engines import ENGINES
from tests.tools.conformance.grade import Answer, Grade, grade, worst
from tests.tools.conformance.modes import prepare
from tests.tools.conformance.suite import Case


@dataclass(frozen=True)
class Outcome:
    """How one model was graded."""

    case: Case
    grade: Grade
    answers: dict[str, Answer]
    error: str = ""

    def line(self) -> str:
        """The model with what was wrong or missing."""
        if self.error:
            return f"{self.case.name}: {self.error}"
        parts = [f"{name}: {self.answers.get(name)} for {truth}" for name, truth in self.case.truth]
        return f"{self.case.name}: " + "; ".join(parts)


@dataclass
class Score:
    """All outcomes of one engine in one mode."""

    engine: str
    mode: str
    outcomes: list[Outcome] = field(default_factory=list)
    cpu: float = 0.0
    """Seconds of the engine alone."""

    @property
    def counts(self) -> Counter[Grade]:
        return Counter(outcome.grade for outcome in self.outcomes)

    @property
    def exact_share(self) -> float:
        """Models whose every result is exact, in percent."""
        return 100.0 * self.counts[Grade.EXACT] / max(len(self.outcomes), 1)

    def of(self, wanted: Grade) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.grade is wanted]

    def row(self) -> str:
        """One line of a table."""
        counts = " ".join(f"{self.counts[one]:8d}" for one in Grade)
        return f"{self.engine:10} {self.mode} {len(self.outcomes):7d} {counts} {self.exact_share:7.1f} % {self.cpu:7.1f}"


def score(engine: str, mode: str, cases: Iterable[Case]) -> Score:
    """Grade an engine in a mode."""
    infer = ENGINES[engine]
    result = Score(engine, mode)
    for case in cases:
        model = prepare(case, mode).SerializeToString()
        started = process_time()
        try:
            answers = infer(model)
        except Exception as error:  # whatever an engine raises costs it this model
            result.cpu += process_time() - started
            result.outcomes.append(Outcome(case, Grade.ERROR, {}, f"{type(error).__name__}: {error}"[:300]))
            continue
        result.cpu += process_time() - started
        found = worst(grade(truth, answers.get(name)) for name, truth in case.truth)
        result.outcomes.append(Outcome(case, found, answers))
    return result
