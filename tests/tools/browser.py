"""A headless browser for tests of pages, driven by the DevTools protocol over a pipe: nothing to install but a Chromium, no port opened."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PATIENCE = 60


def find_browser() -> str | None:
    """The first browser that is installed."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a browser."""

    def __init__(self, process: subprocess.Popen[bytes], read: int, write: int) -> None:
        self._process, self._read, self._write = process, read, write
        self._numbers = itertools.count(1)
        self._left = b""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    _session = ""

    def call(self, method: str, **params: Any) -> Any:
        """A command of the protocol, and its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has gone")
            self._left += piece
        first, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(first)
        return found

    def open(self, path: Path, width: int = 1400, height: int = 900, dark: bool = False) -> None:
        """Load a file at a size of the window."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        until = time.monotonic() + _PATIENCE
        while self.value("document.readyState") != "complete" or self.value("location.protocol") != "file:":
            if time.monotonic() > until:
                raise RuntimeError(f"{path} does not load")
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """What an expression comes to in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", answer["exceptionDetails"]["text"]))
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key, as it is typed."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def type(self, text: str) -> None:
        """Text into what has the focus."""
        self.call("Input.insertText", text=text)

    def point(self, selector: str, x: float = 0.5, y: float = 0.5, *, click: bool = False) -> None:
        """Move the pointer to a place within an element, and click there."""
        script = "(e => { e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height] })"
        left, top, width, height = self.value(f"{script}(document.querySelector({json.dumps(selector)}))")
        place = {"x": left + x * width, "y": top + y * height}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A screenshot, of the window or of the whole page."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def print(self, path: Path) -> None:
        """The page as it is printed."""
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"]))

    def troubles(self) -> list[str]:
        """Errors that the page has had so far, and all that it asked the network for."""
        self.value("1")
        said = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                said.append(params["exceptionDetails"]["exception"].get("description", "an exception"))
            elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                said.append(params["entry"]["text"])
            elif event.get("method") == "Network.requestWillBeSent" and not params["request"]["url"].startswith("file:"):
                said.append(params["request"]["url"])
        return said


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that ends with the block."""
    program = find_browser()
    if program is None:
        raise RuntimeError("no browser is installed")
    from_us, to_browser = os.pipe()
    from_browser, to_us = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The protocol's pipe is at descriptors 3 and 4.
        line = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"]
        process = subprocess.Popen(
            ["bash", "-c", line, "browser", str(from_us), str(to_us), program, *flags, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(from_us, to_us),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        try:
            yield Browser(process, from_browser, to_browser)
        finally:
            os.close(to_browser)
            os.close(from_browser)
            process.terminate()
            process.wait(10)
