"""Which batch fits: `python samples/which_batch_fits.py MODEL [DEVICE ...]`.

For each device the largest batch, what stops a larger one, and how much is left. The model needs a batch that is open;
samples/tagger.irs is one. The devices are the usual ones of 8 to 141 GB where none is named; `irscope devices` lists all.
"""

from __future__ import annotations

import sys

from irscope.api import IrscopeError, fit, load

DEVICES = ("rtx-4060-laptop", "rtx-3060", "rtx-4090", "l40s", "a100", "h200")
GIB = 1 << 30


def row(path: str, device: str) -> str:
    """The answer for one device."""
    found = fit(load(path), free="batch", device=device)
    if not found.fits:
        return f"{device:16} not even batch {found.smallest}: needs {found.peak.bytes / GIB:.2f} GiB of {found.memory / GIB:.2f}"
    batch = "any" if found.largest is None else str(found.largest)
    return f"{device:16} batch {batch:>6}   {found.headroom / GIB:5.2f} GiB left   {found.limited_by.node}"


def main(path: str, devices: tuple[str, ...]) -> int:
    """Print a line for each device."""
    try:
        for device in devices or DEVICES:
            print(row(path, device))
    except IrscopeError as error:
        print(f"error {error.code}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], tuple(sys.argv[2:])))
