"""Draws the pictures of docs/tui.md from the samples: `python samples/draw_tui.py [FOLDER]`."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from irscope.session import open_model
from irscope.tui.app import IrscopeApp
from irscope.tui.picker import samples
from irscope.tui.start import StartScreen
from irscope.tui.text import UNICODE
from irscope.tui.tour import settled

SIZE = (120, 36)
SAMPLE, BOUND = "image-network", {"batch": 32}
OTHERS = {"passes": ("transformer", {"batch": 8, "length": 128})}
"""Pictures that are drawn from another sample."""
PICTURES: dict[str, tuple[str, ...]] = {
    "browse": ("down", "down", "down"),
    "memory": ("2",),
    "addresses": ("2", "v", "3"),
    "parameters": ("3",),
    "cost": ("4",),
    "passes": ("5",),
    "reports": ("7", "a", *"flops", "enter", "n"),
    "graph": ("g", *"layer1", "enter", "8"),
    "help": ("question_mark",),
}
"""The keys that lead to each picture."""
SIZES = ((80, 24), (200, 60))
"""Screens are drawn at these sizes of a terminal too."""


async def picture(name: str, keys: tuple[str, ...], folder: Path, size: tuple[int, int] = SIZE) -> None:
    """One picture of a screen over the sample; its name has the size where it is not the usual one."""
    sample, sizes = OTHERS.get(name, (SAMPLE, BOUND))
    path = next(path for path in samples() if path.stem == sample)
    app = IrscopeApp(open_model(path).rebound(sizes), UNICODE)
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        for key in keys:
            await pilot.press(key)
            await settled(app, pilot)
        app.clear_notifications()
        await pilot.pause()
        write(app.export_screenshot(title=f"irscope tui {path.name}"), file_of(name, folder, size))


def file_of(name: str, folder: Path, size: tuple[int, int]) -> Path:
    """The file of a picture."""
    return folder / f"tui-{name}{'' if size == SIZE else f'-{size[0]}x{size[1]}'}.svg"


async def compare_picture(folder: Path, size: tuple[int, int]) -> None:
    """A model beside the recording of a real run."""
    here = Path(__file__).parent
    model, recording = here / "models" / "cnn.onnx", here / "recordings" / "cnn_onnx.ort-cpu.jsonl"
    if not model.exists():
        print(f"{model} is not there: python samples/build_samples.py builds it")
        return
    app = IrscopeApp(open_model(model), UNICODE, other=str(recording))
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        write(app.export_screenshot(title=f"irscope tui {model.name} {recording.name}"), file_of("compare", folder, size))


async def start_picture(folder: Path, size: tuple[int, int]) -> None:
    """The picture of the start without a file."""
    start = StartScreen(lambda path, tell: (open_model(path), "", None))
    app = IrscopeApp(start, UNICODE)
    async with app.run_test(size=size) as pilot:
        while not start.is_mounted or start.is_busy:
            await pilot.pause(0.01)
        await pilot.pause()
        write(app.export_screenshot(title="irscope tui"), file_of("start", folder, size))


def write(svg: str, target: Path) -> None:
    """Write a picture; its fonts are those of the reader, nothing is fetched."""
    lines = svg.splitlines(keepends=True)
    kept: list[str] = []
    skipping = False
    for line in lines:
        skipping = skipping or line.strip().startswith("@font-face")
        if not skipping:
            kept.append(line)
        if skipping and line.strip() == "}":
            skipping = False
    target.write_text("".join(kept), encoding="utf-8")
    print(target)


def main() -> None:
    """Draw them all."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ["IRSCOPE_HOME"] = home
        for size in (SIZE, *SIZES):
            asyncio.run(start_picture(folder, size))
            asyncio.run(compare_picture(folder, size))
            for name, keys in PICTURES.items():
                asyncio.run(picture(name, keys, folder, size))


if __name__ == "__main__":
    main()
