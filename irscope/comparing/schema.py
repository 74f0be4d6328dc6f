"""The JSON Schema of a comparison.

`python -m irscope.comparing.schema` prints it; docs/compare.schema.json is a copy.
"""

from __future__ import annotations

import sys

from irscope.comparing.document import SCHEMA
from irscope.comparing.jsontypes import CompareJson
from irscope.report.jsonout import json_lines
from irscope.report.schema import schema_of


def schema_text() -> str:
    """The schema as it is published."""
    return "".join(json_lines(schema_of(CompareJson, SCHEMA)))


if __name__ == "__main__":
    sys.stdout.write(schema_text())
