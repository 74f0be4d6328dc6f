"""The UI in a web browser: one command serves it, on this machine alone, to whom it gave the address."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from irscope.tui.picker import samples

pytest.importorskip("textual_serve")


async def _talk(address: str) -> tuple[list[int], str]:
    """What the server answers to those who may not ask, and what a tab shows from the first screen to leaving."""
    import aiohttp

    base, _, key = address.partition("/?key=")
    refused: list[int] = []
    async with aiohttp.ClientSession() as stranger:
        for url, origin in ((base, ""), (f"{base}/?key=guess", ""), (f"{base}/?key=%C3%A4", ""), (f"{base}/ws", base)):
            async with stranger.get(url, headers={"Origin": origin} if origin else {}) as answer:
                refused.append(answer.status)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as tab:
        async with tab.get(address) as page:
            assert page.status == 200 and "textual" in (await page.text())
        async with tab.get(f"{base}/ws", headers={"Origin": "http://elsewhere.example"}) as answer:
            refused.append(answer.status)
        shown = ""
        async with tab.ws_connect(f"{base}/ws?width=80&height=24", origin=base) as terminal:
            await terminal.send_json(["resize", {"width": 100, "height": 30}])
            keys = iter((("Modules", "2"), ("Alive at step", "q")))
            wanted, key = next(keys)
            async for message in terminal:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    continue
                shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", message.data.decode("utf-8", "replace"))
                if wanted and wanted in shown:
                    await terminal.send_json(["stdin", key])
                    wanted, key = next(keys, ("", ""))
    return refused, shown


def test_one_command_serves_the_ui_to_this_machine(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("irscope")), "tui", "--browser", str(samples()[0])]
    environment = {**os.environ, "IRSCOPE_HOME": str(tmp_path)}
    # A tab's process is no exception to what a model's folder may do.
    for name in ("irscope", "torch", "numpy", "json", "textual"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r})\nraise SystemExit(99)\n")
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path) as server:
        assert server.stderr is not None
        try:
            said = server.stderr.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+/\?key=[\w-]+", said)
            assert address is not None, said
            refused, shown = asyncio.run(asyncio.wait_for(_talk(address[0]), 60))
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)
    assert not (tmp_path / "imported").exists()
    assert refused == [403, 403, 403, 403, 403]
    # The screen that says what is read, the model, and another screen by its key; leaving ended the tab.
    for part in ("Reading", "image-network.irs", "Modules", "Alive at step"):
        assert part in shown
