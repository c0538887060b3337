"""A call over real WebSockets: uvicorn on asyncio and hypercorn on Trio, on this machine."""

from __future__ import annotations

import json
import time
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any

import pytest
from call_server_support import COMMANDS, running, state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

client = pytest.importorskip("websockets.sync.client", reason="no WebSockets: pip install websockets")
FRAME = bytes(3200)


@pytest.fixture(scope="module", params=COMMANDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running call server; its host and port."""
    log: Path = tmp_path_factory.mktemp("log") / "server.log"
    with running(request.param, log) as host:
        yield host
    lines = log.read_text()
    assert lines.count("Traceback") == lines.count("RuntimeError: a bug of the application"), lines


def connect(server: str, path: str) -> Any:
    return client.connect(f"ws://{server}{path}", proxy=None, max_size=None)


def receive(socket: Any, wanted: str) -> list[str | bytes]:
    """All frames up to the first one of that name."""
    frames: list[str | bytes] = []
    while not frames or name_of(frames[-1]) != wanted:
        frames.append(socket.recv(timeout=10))
    return frames


def name_of(frame: str | bytes) -> str:
    return frame.partition(" ")[0] if isinstance(frame, str) else "audio"


def message_of(frame: str | bytes) -> dict[str, Any]:
    assert isinstance(frame, str)
    found: dict[str, Any] = json.loads(frame.removeprefix("Message "))
    return found


def speak(socket: Any) -> None:
    socket.send("StartSpeaking")
    socket.send(FRAME)
    socket.send("StopSpeaking")


def test_a_call_over_a_real_socket(server: str) -> None:
    with connect(server, "/call") as socket:
        first = receive(socket, "audio")
        assert message_of(first[0]) == {"role": "assistant", "content": "Hello!"}
        speak(socket)
        frames = receive(socket, "audio")
        assert message_of(frames[0]) == {"role": "user", "content": "3200 bytes"}
        socket.send("StartSpeaking")
        _until_quiet(socket)
        socket.send(FRAME)
        socket.send("StopSpeaking")
        assert message_of(receive(socket, "Message")[-1])["content"] == "3200 bytes"
        receive(socket, "audio")


def _until_quiet(socket: Any) -> None:
    """After StartSpeaking there is no audio any more; what was under way may still come."""
    frames: list[Any] = []
    for _ in range(100):
        try:
            frames.append(socket.recv(timeout=0.3))
        except TimeoutError:
            break
    else:
        raise AssertionError("the answer goes on")
    late = [frame for frame in frames if isinstance(frame, bytes)]
    assert len(late) <= 3


@pytest.mark.parametrize(
    ("sent", "code", "reason"),
    [
        ("nope", 4400, "Invalid params"),
        ('{"other":1}', 4400, "Invalid params"),
        (None, 4400, "Missing params"),
        ('{"lang":"stranger"}', 4401, "Unauthorized"),
        ('{"lang":"crash"}', 1011, ""),
    ],
)
def test_a_client_that_is_refused_reads_why(server: str, sent: str | None, code: int, reason: str) -> None:
    from websockets.exceptions import ConnectionClosed

    with connect(server, "/params") as socket:
        if sent is not None:
            socket.send(sent)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=10)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (code, reason)


def test_nothing_between_the_params_and_the_call_is_lost(server: str) -> None:
    with connect(server, "/params") as socket:
        socket.send('{"lang":"fr"}')
        speak(socket)
        assert message_of(receive(socket, "Message")[-1])["content"] == "Hello in fr"
        assert message_of(receive(socket, "Message")[-1])["content"] == "3200 bytes"


def test_clients_that_vanish_leave_nothing(server: str) -> None:
    before = state(server)
    for number in range(20):
        with connect(server, "/call") as socket:
            speak(socket)
            if number % 2:
                receive(socket, "audio")
                socket.socket.shutdown(SHUT_RDWR)  # without a word
    after = before
    for _ in range(100):
        after = state(server)
        if after["tasks"] <= before["tasks"] and len(after["results"]) >= len(before["results"]) + 20:
            break
        time.sleep(0.1)
    assert after["tasks"] <= before["tasks"]
    assert len(after["results"]) >= len(before["results"]) + 20
    assert after["handles"] <= before["handles"] + 2
