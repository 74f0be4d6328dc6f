"""`python -m irscope` is the same program as `irscope`, and like it imports nothing from the working folder."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `python -m` puts the working folder first, where a file that came with a model may be called torch.py.
        del sys.path[0]
    from irscope.cli.main import main

    sys.exit(main())
