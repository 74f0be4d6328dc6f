"""Codes 5xx: passes."""

from __future__ import annotations

from typing import Final

from irscope.codes.record import CodeDoc

CODES: Final[dict[str, CodeDoc]] = {
    "IRS500": CodeDoc("A pass failed", "The pass raised an error. A reproducer was written; `irscope repro FILE` runs it again."),
    "IRS510": CodeDoc(
        "A report does not hold together",
        "A pass built a table whose columns differ in length, whose kinds do not exist, or that holds something that cannot be shown.",
    ),
    "IRS530": CodeDoc("Interrupted", "The work was stopped before it ended. Nothing was written."),
    "IRS501": CodeDoc("An analysis needs its own result", "Analyses depend on one another in a cycle. The message shows it."),
    "IRS502": CodeDoc(
        "A pass says wrongly whether it changed the graph",
        "`apply` of a transform must return True when it changed anything, since results would go stale otherwise, and False when it did"
        " not. An analysis changes nothing. With --verify-each what was written past the methods of the graph is found as well.",
    ),
    "IRS503": CodeDoc(
        "A transform left a broken graph",
        "With --verify-each the graph is checked after every transform; the message has the first broken rule.",
    ),
    "IRS504": CodeDoc("A transform has no result", "Only analyses have a result that another pass can get."),
    "IRS540": CodeDoc(
        "Something is unknown or assumed, and --strict was given",
        "Without --strict the same run reports what it knows, marks what it assumed, and exits with 0. The message says what was assumed "
        "and how to say it instead.",
    ),
}
