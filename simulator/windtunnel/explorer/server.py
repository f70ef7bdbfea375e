"""The server of the page: loopback only, and every address begins with a token that only the user knows.

Other pages of the browser can send requests to a port of this host too. They do not know the token, which is compared
in constant time; and a name that an attacker's DNS server points to this host is refused by the ``Host`` header.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import logging
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from windtunnel.core.errors import InputError, Location
from windtunnel.core.yamlfile import Document
from windtunnel.explorer import design
from windtunnel.explorer.session import Session, Workshop
from windtunnel.scenario.changes import differences

HOST = "127.0.0.1"
LARGEST = 64 * 1024
"""The largest body and message that is read (bytes)."""
_SLOTS = ("A", "B")


@dataclass(frozen=True)
class Shared:
    """What the handlers of requests need. ``hosts`` are the names by which a browser may reach the server."""

    token: str
    hosts: frozenset[str]
    page: str
    policy: str
    original: Document
    workshop: Workshop

    def followed(self, changes: design.Changes) -> dict[str, Any]:
        """Return a design as ``PATH=VALUE`` changes to the scenario, and values of controls that follow from others."""
        varied = design.design(self.original, changes)
        return {
            "settings": differences(self.original, varied),
            "values": design.effective(varied, changes),
        }

    def checked(self, data: object) -> design.Changes:
        """Return changes that came from the page; raises InputError."""
        return design.checked_changes(data, [control.name for control in self.workshop.controls])


class _Guarded(RequestHandler):
    """Answers 403 unless the request names this host and the token."""

    shared: Shared

    def initialize(self, shared: Shared) -> None:
        self.shared = shared

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        self.clear_header("Server")

    def prepare(self) -> None:
        token = self.request.path.split("/")[1]
        known = hmac.compare_digest(token.encode(), self.shared.token.encode())
        origin = self.request.headers.get("Origin")
        same = origin is None or origin.removeprefix("http://") == self.request.host
        if not known or self.request.host not in self.shared.hosts or not same:
            self.set_status(403)
            self.set_header("Content-Type", "text/plain; charset=utf-8")
            self.finish("Forbidden. The address with the token is the one that `windtunnel explore` printed.\n")

    def write_error(self, status_code: int, **_: Any) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{status_code}: {self._reason}\n")


class _Page(_Guarded):
    def get(self, _token: str) -> None:
        self.set_header("Content-Security-Policy", self.shared.policy)
        self.write(self.shared.page)


class _Write(_Guarded):
    """Writes a design as a new scenario."""

    def post(self, _token: str) -> None:
        try:
            data = json.loads(self.request.body)
            changes = self.shared.checked(data.get("changes") if isinstance(data, dict) else None)
            path = design.write(self.shared.original, changes)
        except (ValueError, UnicodeDecodeError):
            self._refuse("the request is not JSON")
        except InputError as error:
            self._refuse(str(error))
        else:
            self.write({"path": str(path)})

    def _refuse(self, message: str) -> None:
        self.set_status(400)
        self.write({"message": message})


class _Live(_Guarded, WebSocketHandler):
    """Receives changes, and sends what follows from them."""

    session: Session

    def open(self, *_: str) -> None:
        self.session = Session(self.shared.workshop, self._send)

    def on_message(self, message: str | bytes) -> None:
        try:
            data = json.loads(message)
            slot, number = data["slot"], data["number"]
            if slot not in _SLOTS or not isinstance(number, int):
                raise ValueError
            if data["changes"] is None:
                self.session.drop(slot)
                return
        except (ValueError, KeyError, TypeError, RecursionError):
            self.close(1003, "not a change")
            return
        try:
            changes = self.shared.checked(data["changes"])
            followed = self.shared.followed(changes)
        except InputError as error:
            self.session.drop(slot)
            self._send({"slot": slot, "number": number, "kind": "refused", "message": str(error)})
            return
        self._send({"slot": slot, "number": number, "kind": "follows", **followed})
        self.session.change(slot, number, changes)

    def _send(self, data: dict[str, Any]) -> None:
        try:
            self.write_message(json.dumps(data, allow_nan=False))
        except WebSocketClosedError:
            self.session.close()

    def on_close(self) -> None:
        if hasattr(self, "session"):
            self.session.close()


class _Unknown(_Guarded):
    def prepare(self) -> None:
        super().prepare()
        if not self._finished:
            self.send_error(404)


def _listening(port: int) -> socket.socket:
    """Return a socket that listens on this host only; raises InputError if the port is not free."""
    listening = socket.socket()
    listening.setblocking(False)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise InputError(
            f"port {port} is {'in use' if error.errno == errno.EADDRINUSE else 'not available'}",
            where=Location(field="--port"),
            expected="another port, or none for a free one",
        ) from None
    return listening


async def serve(
    *,
    port: int,
    original: Document,
    workshop: Workshop,
    page: str,
    policy: str,
    announce: Callable[[str], None],
) -> None:
    """Serve the page until the task is cancelled. ``announce`` is called with its address.

    Raises:
        InputError: The port is in use.
    """
    for log in ("tornado.access", "tornado.general"):
        logging.getLogger(log).setLevel(logging.CRITICAL)
    listening = _listening(port)
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    hosts = frozenset({f"{HOST}:{port}", f"localhost:{port}"})
    shared = Shared(token, hosts, page, policy, original, workshop)
    to = {"shared": shared}
    application = Application(
        [(r"/([\w-]+)/", _Page, to), (r"/([\w-]+)/write", _Write, to), (r"/([\w-]+)/live", _Live, to)],
        default_handler_class=_Unknown,
        default_handler_args=to,
        websocket_max_message_size=LARGEST,
    )
    server = HTTPServer(application, max_body_size=LARGEST, max_buffer_size=2 * LARGEST)
    server.add_socket(listening)
    try:
        announce(f"http://{HOST}:{port}/{token}/")
        await asyncio.Event().wait()
    finally:
        server.stop()
        workshop.close()
