"""Codes 2xx: shapes."""

from __future__ import annotations

from typing import Final

from irscope.codes.record import CodeDoc

CODES: Final[dict[str, CodeDoc]] = {
    "IRS201": CodeDoc(
        "The model contradicts an operator",
        "Operands of a node do not fit together, such as sizes that must agree and do not. "
        "Its results are unknown; the rest of the model is analysed.",
    ),
    "IRS202": CodeDoc(
        "A shape rule failed",
        "The rule of an operator raised an error: a bug in irscope or a plugin. It costs only the results of that node.",
    ),
    "IRS205": CodeDoc(
        "An operator has no record",
        "irscope does not know the operator. Its results have the types the file declares and its cost is unknown. "
        "docs/add-an-operator.md shows how to add a record, in irscope or in a plugin.",
    ),
}
