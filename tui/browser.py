"""The UI in a web browser, by textual-serve: on this machine alone, each tab a process of its own."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import sys
from collections.abc import Sequence
from typing import Any

from irscope import processes
from irscope.errors import UsageError

HOST = "127.0.0.1"
SERVED = "IRSCOPE_SERVED"
"""Set in the environment of what runs for a tab of the browser."""
_COOKIE = "irscope"


def serve(arguments: Sequence[str]) -> None:
    """Serve `irscope tui` with these arguments until it is interrupted; says on stderr at which address."""
    try:
        from aiohttp import web
        from textual_serve.server import Server
    except ImportError as error:
        raise UsageError("the UI in a browser needs textual-serve", hint="pip install textual-serve") from error

    class LocalServer(Server):
        """Only who has the address with its secret gets a page, and only that page may open a terminal."""

        secret = secrets.token_urlsafe(16)

        async def handle_index(self, request: web.Request) -> Any:
            if not _is_key(request.query.get("key", ""), self.secret):
                raise web.HTTPForbidden(text="The address that irscope printed has a key, which is missing here.")
            page = await super().handle_index(request)
            page.set_cookie(_COOKIE, self.secret, httponly=True, samesite="Strict")
            return page

        async def handle_websocket(self, request: web.Request) -> Any:
            # Any page that a browser shows may ask for a connection to this machine; its origin tells it apart.
            is_ours = request.headers.get("Origin") == self.public_url
            if not is_ours or not _is_key(request.cookies.get(_COOKIE, ""), self.secret):
                raise web.HTTPForbidden(text="Only the page of irscope may do this.")
            return await super().handle_websocket(request)

        async def on_startup(self, app: web.Application) -> None:
            sys.stderr.write(f"irscope tui is at {self.public_url}/?key={self.secret} (this machine only); ctrl-c ends it\n")
            sys.stderr.flush()

    os.environ[SERVED] = "1"
    with socket.create_server((HOST, 0)) as listening:
        command = shlex.join(processes.irscope(["tui", *arguments]))
        server = LocalServer(command, host=HOST, port=listening.getsockname()[1], title="irscope")
        web.run_app(server._make_app(), sock=listening, print=None)


def _is_key(given: str, secret: str) -> bool:
    """Return whether a text is the secret, in a time that does not tell how much of it is right; any text may be given."""
    return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())
