"""What is different on Windows and macOS, with the platform imitated here: nobody has run it there yet."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from pty_support import terminal
from starlette.applications import Starlette

from micdrop_agent.call import Drain, _stop_signal
from micdrop_agent.cli import _editor, _lines
from micdrop_agent.cli._interrupts import forgive_accepting, interrupts
from micdrop_agent.testing import BACKENDS
from micdrop_agent.transport import loop_stream, tls

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

WINDOWS, MACOS = SimpleNamespace(platform="win32"), SimpleNamespace(platform="darwin")
each_backend = pytest.mark.parametrize("backend", BACKENDS)


def no_signals_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """As asyncio's loop on Windows."""

    def refuse(*_: Any) -> None:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", refuse)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "remove_signal_handler", refuse)


@each_backend
def test_ctrl_c_is_waited_for_where_the_loop_has_no_signals(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    no_signals_on_the_loop(monkeypatch)
    before = signal.getsignal(signal.SIGINT)
    seen: list[int] = []

    async def scenario() -> None:
        with interrupts() as signals:
            for _ in range(40):  # more than anybody waits for: none of them may raise
                signal.raise_signal(signal.SIGINT)
            await anyio.lowlevel.checkpoint()
            with anyio.fail_after(10):
                async for each in signals:
                    seen.append(each)
                    break

    anyio.run(scenario, backend=backend)

    assert seen == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_connection_that_comes_while_its_server_is_cancelled_is_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        forgive_accepting()
        loop = asyncio.get_running_loop()
        cancelled = loop.create_future()
        cancelled.cancel()
        loop.call_soon(cancelled.set_result, "a connection")  # as asyncio's own callback does
        loop.call_soon(int, "no number")
        await asyncio.sleep(0)

    asyncio.run(scenario())

    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [ValueError]


def test_a_chat_is_interrupted_and_left_where_the_loop_has_no_signals() -> None:
    program = """
import asyncio, sys
from micdrop_agent.cli import main

def refuse(*_):
    raise NotImplementedError

asyncio.SelectorEventLoop.add_signal_handler = refuse
sys.exit(main(["chat", "--agent", "echo"]))
"""
    with terminal(program=program) as screen:
        screen.expect("you>")
        screen.type("hello\r")
        screen.expect('You said: "hello"')
        screen.expect("you>")
        screen.type("\x03")
        screen.expect("press Ctrl-C again to leave")
        screen.type("\x03")

        assert screen.end() == 0
        assert "Traceback" not in screen.seen


@each_backend
def test_standard_input_is_read_in_a_thread_on_windows(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lines, "sys", WINDOWS)
    out, into = os.pipe()
    os.write(into, b"one\r\ntwo")
    os.close(into)

    async def scenario() -> list[str | None]:
        lines = _lines.Lines(out)
        return [await lines.next() for _ in range(3)]

    assert anyio.run(scenario, backend=backend) == ["one", "two", None]
    os.close(out)


@each_backend
def test_waiting_for_a_line_can_be_cancelled_on_windows(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lines, "sys", WINDOWS)
    out, into = os.pipe()

    async def scenario() -> bool:
        with anyio.move_on_after(0) as scope:
            await _lines.Lines(out).next()
        return scope.cancelled_caught

    try:
        assert anyio.run(scenario, backend=backend)
    finally:
        os.close(into)  # lets the thread that was left behind end


def test_the_history_is_where_each_system_keeps_such_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_editor, "sys", WINDOWS)
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert _editor.history_file() == tmp_path / "micdrop-agent" / "history"
    monkeypatch.delenv("LOCALAPPDATA")
    assert _editor.history_file() == Path.home() / "AppData" / "Local" / "micdrop-agent" / "history"
    monkeypatch.setattr(_editor, "sys", MACOS)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert _editor.history_file() == Path.home() / ".local" / "state" / "micdrop-agent" / "history"


@pytest.mark.parametrize("platform", [WINDOWS, MACOS], ids=["windows", "macos"])
def test_the_certificates_of_the_system_are_asked_for(
    platform: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    truststore = pytest.importorskip("truststore")
    monkeypatch.setattr(tls, "sys", platform)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(tls._from_system(), truststore.SSLContext)

    monkeypatch.setitem(sys.modules, "truststore", None)
    without = tls._from_system()
    assert isinstance(without, ssl.SSLContext)
    assert without.verify_mode is ssl.CERT_REQUIRED


def test_connections_share_no_buffer_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.new_event_loop()
    assert loop_stream._buffer_of(loop) is loop_stream._buffer_of(loop)
    monkeypatch.setattr(loop_stream, "os", SimpleNamespace(name="nt"))
    assert loop_stream._buffer_of(loop) is not loop_stream._buffer_of(loop)
    loop.close()


@each_backend
def test_a_server_that_drains_starts_on_windows_too(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    no_signals_on_the_loop(monkeypatch)
    monkeypatch.setattr(_stop_signal, "sys", SimpleNamespace(platform="win32", modules=sys.modules))
    told, heard = anyio.create_memory_object_stream[dict[str, Any]](8)
    said: list[str] = []

    async def send(message: Any) -> None:
        said.append(message["type"])

    async def scenario() -> None:
        app = Drain().wrap(Starlette())
        with told, heard:
            told.send_nowait({"type": "lifespan.startup"})
            told.send_nowait({"type": "lifespan.shutdown"})
            with anyio.fail_after(10):
                await app({"type": "lifespan", "app": app, "state": {}}, heard.receive, send)

    anyio.run(scenario, backend=backend)

    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
