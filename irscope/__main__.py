"""`python -m irscope` is the same program as `irscope`."""

from __future__ import annotations

import sys

from irscope.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
