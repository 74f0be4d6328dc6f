"""A large model in the UI: first paint, answers to keys, memory, a page of a million rows: `python -m benchmarks.tui [NODES]`."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter, process_time, thread_time

from textual import events
from textual.app import App, ComposeResult
from textual.keys import _character_to_key

from benchmarks.tui_model import write

NODES, ROWS = 100_000, 1_000_000
VISIBLE, FIRST_PAINT, KEY, MEMORY, PAGE = 0.3, 1.0, 0.050, 150.0, 0.060
"""Targets: seconds until anything is on the screen, seconds above loading, seconds at the 95th percentile, MB above the graph, seconds."""
ROOT = Path(__file__).parents[1]
_SIZE = (120, 40)
_LOAD = "import sys, os, pathlib, irscope.session as s; s.open_model(pathlib.Path(sys.argv[1])); print('{}', flush=True); os._exit(0)"
_STYLE = ROOT / "tui" / "irscope.tcss"
_TREE = ("down", "pagedown", "asterisk", "end", "pageup", "home", "right", "down", "right", "left", "minus", "p", "up", "z", "z")
_FILTER = ("slash", "o", "p", "colon", "l", "i", "n", "space", "m", "e", "m", "greater_than_sign", "1", "M", "escape")
_MEMORY = ("right", "L", "n", "N", "p", "space", "L", "space", "plus", "minus", "0", "r", "r", "end", "home", "p")
_SIZES = ("greater_than_sign", "greater_than_sign", "right_curly_bracket", "less_than_sign", "left_curly_bracket")
_TABLE = ("down", "pagedown", "s", "s", "R", "end", "home", "slash", "1", "escape")
_WALK = ("down", "down", "up", "right", "left", "down", "L", "J", "K", "H", "home")
KEYS = {
    "browse": (*_TREE, *_FILTER),
    "memory": ("2", *_MEMORY, *_SIZES, "tab", *_TABLE),
    "cost": ("4", *_TABLE, "o", *_TABLE, "o", *_TABLE),
    "parameters": ("3", *_TABLE),
    "graph": ("8", *_WALK, "plus", "plus", *_WALK, "minus", "minus"),
    "whole graph": ("v", *_WALK, "space", "space", "plus", "space", *_WALK),
}


def child(*arguments: str) -> dict[str, object]:
    """What a fresh Python answers, with its CPU and wall seconds."""
    started, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    # Loading alone imports nothing of the UI.
    command = ["-c", _LOAD, *arguments[1:]] if arguments[0] == "load" else ["-m", "benchmarks.tui", *arguments]
    done = subprocess.run([sys.executable, *command], check=True, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": perf_counter() - started, "cpu": cpu, **json.loads(done.stdout.splitlines()[-1])}


def resident() -> float:
    """Megabytes that this process holds, after what is free was given back."""
    import ctypes
    import gc

    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize() / 1e6


# -- what the fresh processes do -----------------------------------------------------------------------------------


def paint(path: str) -> None:
    """Read the model and end with the first paint."""
    from irscope.session import open_model
    from irscope.tui.app import IrscopeApp
    from irscope.tui.session import quiet_collector

    class Watched(IrscopeApp):
        CSS_PATH = _STYLE

        def _display(self, screen: object, renderable: object) -> None:
            super()._display(screen, renderable)  # type: ignore[arg-type]
            if "module / operator" in "".join(strip.text for strip in self.screen._compositor.render_strips()):
                print(json.dumps({}), flush=True)
                os._exit(0)

    model = open_model(Path(path))
    with quiet_collector():

        async def run() -> None:
            async with Watched(model).run_test(size=_SIZE):
                await asyncio.sleep(60)

        asyncio.run(run())


class Presser:
    """Presses keys and takes the time until the last paint that follows each."""

    def __init__(self, app: App[None], displays: list[tuple[float, float]]) -> None:
        self.app = app
        self.displays = displays
        self.found: dict[str, list[tuple[str, float, float]]] = {}

    async def answer(self, key: str) -> tuple[float, float] | None:
        """Seconds from a key to the last paint, and CPU seconds of the UI's thread; None where nothing was to be painted."""
        displays = self.displays
        displays.clear()
        worked = thread_time()
        character = {"space": " "}.get(key, key if len(key) == 1 else None)
        started = perf_counter()
        self.app.post_message(events.Key(_character_to_key(key) if len(key) == 1 else key, character))
        while perf_counter() - started < 0.15 or (displays and perf_counter() - displays[-1][0] < 0.03 and perf_counter() - started < 3):
            await asyncio.sleep(0.002)
        return (displays[-1][0] - started, displays[-1][1] - worked) if displays else None

    async def press(self, name: str, pressed: Iterable[str]) -> None:
        """Note what some keys take."""
        for key in pressed:
            taken = await self.answer(key)
            if taken is not None:
                self.found.setdefault(name, []).append((key, *taken))


def keys(path: str) -> None:
    """Answer keys while analyses run, then on all screens; then say what memory is held."""
    from irscope.session import open_model
    from irscope.tui.app import IrscopeApp
    from irscope.tui.screen import screen_class
    from irscope.tui.session import quiet_collector

    displays: list[tuple[float, float]] = []

    class Watched(IrscopeApp):
        CSS_PATH = _STYLE

        def _display(self, screen: object, renderable: object) -> None:
            super()._display(screen, renderable)  # type: ignore[arg-type]
            displays.append((perf_counter(), thread_time()))

    for name in ("memory", "cost", "params", "reports", "passes", "graph"):
        screen_class(name)
    model = open_model(Path(path))
    graph = resident()

    async def idle(app: IrscopeApp) -> None:
        while not app.session.queue.is_idle:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)

    async def run() -> None:
        app = Watched(model)
        async with app.run_test(size=_SIZE):
            presser = Presser(app, displays)
            while not displays:
                await asyncio.sleep(0.005)
            await presser.press("while analyses run", _TREE)
            await idle(app)
            for name, pressed in KEYS.items():
                # The first key shows the screen, whose answer may take a while; no other key waits for it.
                await presser.press(name, pressed[:1])
                await idle(app)
                await presser.press(name, pressed[1:])
            await idle(app)
            drawn = resident() - graph
            await presser.press("back on browse", ("1",))
            await idle(app)
            print(json.dumps({"keys": presser.found, "memory": resident() - graph, "drawn": drawn}), flush=True)
            os._exit(0)

    with quiet_collector():
        asyncio.run(run())


def late(path: str) -> None:
    """How late the loop of the UI is while the analyses of all screens run, as somebody who holds a key would notice it."""
    from irscope.session import open_model
    from irscope.tui.app import IrscopeApp
    from irscope.tui.session import quiet_collector

    class Styled(IrscopeApp):
        CSS_PATH = _STYLE

    model = open_model(Path(path))

    async def run() -> None:
        app = Styled(model)
        found: list[float] = []

        async def beat() -> None:
            while True:
                before = perf_counter()
                await asyncio.sleep(_BEAT)
                found.append(perf_counter() - before - _BEAT)

        async with app.run_test(size=_SIZE) as pilot:
            beating = asyncio.create_task(beat())
            for key in ("", "2", "4", "3"):
                if key:
                    await pilot.press(key)
                await asyncio.sleep(0.3)
                while not app.session.queue.is_idle:
                    await asyncio.sleep(0.05)
            beating.cancel()
            print(json.dumps({"p95": percentile(found, 0.95), "most": max(found)}), flush=True)
            os._exit(0)

    with quiet_collector():
        asyncio.run(run())


_BEAT = 0.005
"""Seconds between two looks of `late`."""


def page() -> None:
    """Page through a table of a million rows."""
    import numpy as np

    from irscope.tui.rows import TableColumn, TableModel
    from irscope.tui.text import UNICODE
    from irscope.tui.widgets.table import VirtualTable

    sizes = np.random.default_rng(0).integers(0, 1 << 30, ROWS)
    columns = (
        TableColumn("name", 20, lambda row: f"tensor {row}", grows=True),
        TableColumn("bytes", 12, lambda row: f"{sizes[row]:,}", lambda: sizes, right=True),
    )
    model = TableModel(columns, ROWS, UNICODE)

    class Tables(App[None]):
        def compose(self) -> ComposeResult:
            yield VirtualTable(model, id="rows")

    def timed(work: Callable[[], object], table: VirtualTable) -> float:
        started = process_time()
        work()
        for y in range(table.size.height):
            table.render_line(y)
        return process_time() - started

    async def run() -> None:
        app = Tables()
        async with app.run_test(size=_SIZE) as pilot:
            await pilot.pause()
            table = app.query_one(VirtualTable)
            pages = [timed(table.action_page_down, table) for _ in range(200)]
            taken = {
                "page": sorted(pages)[int(len(pages) * 0.95)],
                "sort": timed(lambda: table.action_sort(1), table),
                "end": timed(table.action_last, table),
                "filter": timed(lambda: (model.filter(sizes > 1 << 29), table.redraw()), table),
            }
        print(json.dumps(taken))

    asyncio.run(run())


def plain() -> None:
    """Keys on a plain Tree and DataTable of Textual with as many rows, as far as these can be filled in some seconds."""
    from textual.widgets import DataTable, Tree

    displays: list[tuple[float, float]] = []

    class Plain(App[None]):
        def compose(self) -> ComposeResult:
            yield (DataTable(id="plain") if self.is_table else Tree("model", id="plain"))

        def __init__(self, is_table: bool) -> None:
            super().__init__()
            self.is_table = is_table

        def _display(self, screen: object, renderable: object) -> None:
            super()._display(screen, renderable)  # type: ignore[arg-type]
            displays.append((perf_counter(), thread_time()))

        def on_mount(self) -> None:
            widget = self.query_one("#plain")
            if isinstance(widget, DataTable):
                widget.add_columns("name", "bytes")
                widget.add_rows((f"tensor {row}", f"{row:,}") for row in range(_PLAIN))
            elif isinstance(widget, Tree):
                widget.root.expand()
                for row in range(_PLAIN):
                    widget.root.add_leaf(f"tensor {row}")
            widget.focus()

    found: dict[str, list[tuple[str, float, float]]] = {}

    async def run(name: str, app: App[None]) -> None:
        async with app.run_test(size=_SIZE) as pilot:
            await pilot.pause(3)
            presser = Presser(app, displays)
            await presser.press(name, ("down", "pagedown", "pagedown", "up", "end", "pageup", "home", "down", "down", "pagedown"))
            found.update(presser.found)

    asyncio.run(run("a plain DataTable", Plain(is_table=True)))
    asyncio.run(run("a plain Tree", Plain(is_table=False)))
    print(json.dumps({"keys": found}))


_PLAIN = 10_000
"""Rows of the plain widgets: with a hundred thousand these take half a minute to fill."""
_EMPTY = """
from textual.app import App
from textual.widgets import Footer, Static


class Empty(App):
    def compose(self):
        yield Static("Reading")
        yield Footer()


Empty().run()
"""


def visible(command: list[str]) -> tuple[float, float]:
    """Seconds, and CPU seconds, from the start of a command in a terminal until the word Reading is on the screen."""
    import pty
    import select
    import signal

    child, terminal = pty.fork()
    if not child:
        os.chdir(ROOT)
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], command)
    started, shown = perf_counter(), b""
    while b"Reading" not in shown and perf_counter() - started < 30:
        if select.select([terminal], [], [], 0.01)[0]:
            shown += os.read(terminal, 1 << 16)
    taken = perf_counter() - started
    fields = Path(f"/proc/{child}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(terminal)
    return taken, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- report --------------------------------------------------------------------------------------------------------


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of them lies."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def main(nodes: int = NODES) -> None:
    """Measure and print; nothing here passes or fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.irs")
        write(Path(path), nodes)
        loads, paints = [child("load", path) for _ in range(3)], [child("paint", path) for _ in range(3)]
        print(f"{nodes:,} nodes, symbolic batch, {_SIZE[0]}x{_SIZE[1]}")
        for measure in ("cpu", "wall"):
            above = min(float(str(one[measure])) for one in paints) - min(float(str(one[measure])) for one in loads)
            print(f"  first paint above loading   {above:6.2f} {measure} s    target {FIRST_PAINT:.1f}")
        for name, command in (("irscope tui", ["-m", "irscope", "tui", path]), ("an empty Textual app", ["-c", _EMPTY])):
            wall, cpu = min(visible([sys.executable, *command]) for _ in range(3))
            print(f"  {name:26}  {wall:6.2f} wall s, {cpu:.2f} CPU s until it is on the screen    target {VISIBLE:.1f}")
        answered = child("keys", path)
        simple, lateness = child("plain"), child("late", path)
    every: list[tuple[float, float]] = []
    answered["keys"].update(simple["keys"])  # type: ignore[attr-defined]
    print("  keys, from the message to the last paint, ms        wall median  p95    CPU median  p95  most")
    for name, found in answered["keys"].items():  # type: ignore[attr-defined]
        wall, cpu = [one[1] for one in found], [one[2] for one in found]
        every += list(zip(wall, cpu, strict=True)) if name in KEYS else []
        slowest = max(found, key=lambda row: row[2])
        walls, cpus = (f"{percentile(taken, 0.5) * 1000:5.0f} {percentile(taken, 0.95) * 1000:5.0f}" for taken in (wall, cpu))
        print(f"    {name:20} {len(found):3} keys                     {walls}         {cpus} {slowest[2] * 1000:5.0f} ({slowest[0]})")
    walls, cpus = (percentile([one[number] for one in every], 0.95) * 1000 for number in (0, 1))
    print(
        f"    all screens          {len(every):3} keys, p95 {walls:.0f} wall, {cpus:.0f} CPU of the UI's thread    target {KEY * 1000:.0f}"
    )
    p95, most = (float(str(lateness[key])) * 1000 for key in ("p95", "most"))
    print(f"    while all screens are computed the UI is late to look at a key by {p95:.0f} ms at p95, {most:.0f} at most")
    print(f"  memory above the graph      {answered['memory']:6.0f} MB       target {MEMORY:.0f}, all screens visited")
    print(f"  the same while the whole graph is drawn {answered['drawn']:4.0f} MB")
    print(f"{ROWS:,} rows in a table, CPU ms")
    for what, seconds in child("page").items():
        if what not in ("wall", "cpu"):
            print(f"  {what:8} {float(str(seconds)) * 1000:6.1f}   target {PAGE * 1000:.0f}")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].isdigit():
        globals()[sys.argv[1]](*sys.argv[2:])
    else:
        main(*map(int, sys.argv[1:]))
