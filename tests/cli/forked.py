"""Command lines of irscope in children of one process that has imported torch: `irscope simulate` begins without waiting for that."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import tempfile
from pathlib import Path

_SERVER = "from irscope.cli.simulate import serve; serve()"
_servers: list[subprocess.Popen[str]] = []


def irscope(*line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What `irscope LINE` does in a folder."""
    if not _servers:
        _servers.append(subprocess.Popen([sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        atexit.register(_end)
    [server] = _servers
    assert server.stdin is not None and server.stdout is not None
    with tempfile.TemporaryDirectory() as own:
        out, err = Path(own, "out"), Path(own, "err")
        server.stdin.write(json.dumps({"line": list(line), "stdout": str(out), "stderr": str(err), "folder": str(folder)}) + "\n")
        server.stdin.flush()
        server.stdout.readline()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(line, code, out.read_text(), err.read_text())


def _end() -> None:
    for server in _servers:
        server.communicate()
