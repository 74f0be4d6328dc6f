"""`python -m irscope` is the same program as `irscope`, and like it imports nothing from the working folder."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command line; Ctrl-C ends it in one line also while its modules are still read."""
    parts = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if "" in parts and len(parts) > 1 and os.path.abspath("") not in parts:
        # An empty part, as `$PYTHONPATH:/x` leaves it, is the working folder, where a file that came with a model may be called json.py.
        sys.path[:] = [place for place in sys.path if os.path.abspath(place) != os.path.abspath("")]
    try:
        from irscope.cli.main import main as run

        code = run()
    except KeyboardInterrupt:
        sys.stderr.write("irscope: interrupted\n")
        code = 130
    if code == 130:  # pressed again while Python ends, Ctrl-C ends it at once, with the same code for a shell, and without a traceback
        import signal  # no module is read before Ctrl-C is caught

        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `python -m` puts the working folder first, where a file that came with a model may be called torch.py.
        del sys.path[0]
    sys.exit(main())
