"""The server of `windtunnel explore`: the token, the name of the host, requests and connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.unit.exploring import QUEUE, SERVING, FakeLane, looker, offered
from tornado.websocket import websocket_connect

from windtunnel.core.errors import InputError
from windtunnel.explorer import session
from windtunnel.explorer.server import serve
from windtunnel.scenario.changes import read_document
from windtunnel.scenario.read import check_scenario


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server whose lanes answer in its own process."""
    of = looker(SERVING, tmp_path)
    found: list[str] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()

    def announce(text: str) -> None:
        found.append(text)
        ready.set()

    async def main() -> None:
        lane: Any = FakeLane(of)
        shop = session.Workshop(lane, lane, list(offered(of).values()))
        await serve(
            port=0, original=of.document, workshop=shop, page="<p>the page", policy="default-src 'none'",
            announce=announce,
        )  # fmt: skip

    task = loop.create_task(main())

    def work() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    yield found[0]
    loop.call_soon_threadsafe(task.cancel)
    thread.join()
    loop.close()


def ask(address: str, path: str | None = None, method: str = "GET", body: Any = None, **headers: str) -> Any:
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port)
    names = {key.replace("_", "-"): value for key, value in headers.items()}
    with contextlib.closing(connection):
        connection.request(method, parts.path if path is None else path, body, names)
        reply = connection.getresponse()
        return reply, reply.read().decode()


def test_the_page_needs_the_token_and_the_name_of_this_host(address: str) -> None:
    parts = urlsplit(address)
    assert parts.hostname == "127.0.0.1" and len(parts.path) > 30
    reply, text = ask(address)
    assert (reply.status, text) == (200, "<p>the page")
    assert reply.getheader("Content-Security-Policy") == "default-src 'none'"
    assert reply.getheader("Cache-Control") == "no-store" and reply.getheader("Referrer-Policy") == "no-referrer"
    for path in ("/", "/wrong/", "/wrong/live", "/wrong/write", "/wrong/other", parts.path[:-2] + "/"):
        assert ask(address, path)[0].status == 403, path
    assert ask(address, parts.path + "other")[0].status == 404
    assert ask(address, Host="evil.example")[0].status == 403
    assert ask(address, Host=f"evil.example:{parts.port}")[0].status == 403
    assert ask(address, Host=f"localhost:{parts.port}")[0].status == 200
    assert ask(address, Origin="http://evil.example")[0].status == 403


def test_a_design_is_written_by_a_request_of_the_page_only(address: str, tmp_path: Path) -> None:
    path = urlsplit(address).path + "write"
    body = json.dumps({"changes": {"fleet[0].replicas": 1}})
    assert ask(address, "/wrong/write", "POST", body)[0].status == 403
    assert ask(address, path, "POST", body, Origin="http://evil.example")[0].status == 403
    assert not list(tmp_path.glob("*-explored*"))
    reply, text = ask(address, path, "POST", body)
    written = Path(json.loads(text)["path"])
    assert reply.status == 200 and check_scenario(read_document(written)).fleet[0].count == 1
    for wrong in (
        "no JSON",
        "[]",
        json.dumps({"changes": {"fleet[0].replicas": "many"}}),
        json.dumps({"changes": {"x": 1}}),
    ):
        reply, text = ask(address, path, "POST", wrong)
        assert reply.status == 400 and json.loads(text)["message"], wrong
    with contextlib.suppress(ConnectionError):  # a large body is not read, and the connection may end before the answer
        assert ask(address, path, "POST", body.ljust(10_000_000))[0].status in (400, 413)
    assert len(list(tmp_path.glob("*-explored*"))) == 1


def test_changes_are_answered_over_one_connection(address: str) -> None:
    live = address.replace("http", "ws") + "live"

    async def main() -> None:
        connection = await websocket_connect(live)
        await connection.write_message(json.dumps({"slot": "A", "number": 7, "changes": {"fleet[0].replicas": 1}}))
        seen: list[dict[str, Any]] = []
        while not any(m["kind"] == "seen" for m in seen):
            seen.append(json.loads(await connection.read_message()))
        assert {m["number"] for m in seen} == {7}
        assert seen[0]["settings"] == ["fleet[0].count=1"]
        assert seen[0]["values"] == {"fleet[0].replicas": 1, "fleet[0].price": "2.99 USD/h"}
        await connection.write_message(json.dumps({"slot": "A", "number": 8, "changes": {"fleet[0].replicas": "x"}}))
        while seen[-1]["number"] != 8:
            seen.append(json.loads(await connection.read_message()))
        assert seen[-1]["kind"] == "refused" and "a number of replicas" in seen[-1]["message"]
        await connection.write_message("nonsense")
        while await connection.read_message() is not None:
            pass
        assert connection.close_code == 1003
        connection.close()
        await asyncio.sleep(0)

    asyncio.run(main())


def test_a_port_in_use_is_an_error_of_the_input(address: str, tmp_path: Path) -> None:
    of = looker(QUEUE, tmp_path)
    port = urlsplit(address).port
    assert port is not None

    async def main() -> None:
        lane: Any = FakeLane(of)
        shop = session.Workshop(lane, lane, [])
        await serve(port=port, original=of.document, workshop=shop, page="", policy="", announce=lambda _: None)

    with pytest.raises(InputError, match=f"port {port} is in use"):
        asyncio.run(main())
