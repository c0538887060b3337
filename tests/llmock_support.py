"""llmock, a mock of model servers that others wrote, in a process of its own on a loopback port.

The listening socket is made here and inherited: clients may connect before the server is up, and no
other process can take the port. The server ends as soon as its standard input does, so it also goes
when the tests are killed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import pytest

from micdrop_agent import ChatAgent, MistralAgent, OpenaiAgent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from typing import Self

HAVE_LLMOCK: Final = find_spec("llmock") is not None and hasattr(os, "fork")
needs_llmock = pytest.mark.skipif(not HAVE_LLMOCK, reason="needs llmock, of the dependency group tests, on POSIX")

AGENTS: Final[dict[str, tuple[type[Any], str]]] = {
    "chat": (ChatAgent, "/v1"),
    "openai": (OpenaiAgent, "/v1"),
    "mistral": (MistralAgent, "/mistral/v1"),
}
"""Each agent, and where llmock speaks its dialect."""

each_agent = pytest.mark.parametrize("kind", AGENTS)
each_backend = pytest.mark.parametrize("backend", ["asyncio", "trio"])

KEY: Final = "sk-llmock-secret-0123456789"
BOUND_S: Final = 60.0
"""Longest that one test may take before it counts as hanging; never reached when all is well."""

_SERVE: Final = """
import os, socket, sys, threading
import uvicorn
from llmock.main import create_app

def end_with_the_tests():
    sys.stdin.buffer.read()
    os._exit(0)

threading.Thread(target=end_with_the_tests, daemon=True).start()
config = uvicorn.Config(create_app(), log_level="error", lifespan="off")
uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
"""


class MockServer:
    """A running llmock.

    Args:
        chunk_delay_ms: Milliseconds between two chunks of a stream.
    """

    def __init__(self, *, chunk_delay_ms: int = 0) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        with listener:
            self.port: int = listener.getsockname()[1]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, str(listener.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                env={**os.environ, "LLMOCK_STREAM_CHUNK_DELAY_MS": str(chunk_delay_ms)},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _control(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND_S)
        with contextlib.closing(connection):
            connection.request(method, f"/_llmock{path}", None if body is None else json.dumps(body))
            response = connection.getresponse()
            answer = json.loads(response.read())
            assert response.status < 400, answer
            return answer

    def reset(self) -> None:
        """Forget what was asked, and what is to be done."""
        self._control("POST", "/reset")

    def plan(self, *behaviors: dict[str, Any]) -> None:
        """Queue behaviours, in llmock's own words."""
        self._control("POST", "/scenario", {"behaviors": list(behaviors)})

    def journal(self) -> list[dict[str, Any]]:
        """The requests that have ended; llmock waits up to 2 s for those that have not."""
        requests: list[dict[str, Any]] = self._control("GET", "/requests")["requests"]
        return requests

    def mark(self) -> int:
        """Ask for something small, whatever was planned; the number of that request, given as requests begin."""
        self._control("DELETE", "/scenario")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND_S)
        with contextlib.closing(connection):
            connection.request("GET", "/v1/models")
            connection.getresponse().read()
        return max(int(request["seq"]) for request in self.journal() if request["path"] == "/v1/models")

    def all_ended(self, begin: int, end: int) -> bool:
        """Whether every request that has begun between two marks has ended."""
        return {request["seq"] for request in self.journal()} >= set(range(begin, end + 1))

    def verdict(self) -> dict[str, Any]:
        """What llmock thinks of its client."""
        verdict: dict[str, Any] = self._control("GET", "/verdict")
        return verdict

    async def until_ended(self, count: int) -> list[dict[str, Any]]:
        """The journal, once ``count`` requests have ended there."""
        with anyio.fail_after(BOUND_S):
            while True:
                journal = await anyio.to_thread.run_sync(self.journal)
                if len(journal) >= count:
                    return journal

    def make(self, kind: str, **options: Any) -> Any:
        """An agent of that kind that talks to this server."""
        agent, path = AGENTS[kind]
        given: dict[str, Any] = {"model": "m", "api_key": KEY, "base_url": f"{self.root}{path}", **options}
        return agent(**given)


@contextlib.contextmanager
def fresh(server: MockServer, *behaviors: dict[str, Any]) -> Generator[MockServer]:
    """``server`` with an empty journal and these behaviours only."""
    server.reset()
    if behaviors:
        server.plan(*behaviors)
    yield server


async def until(ready: Callable[[], object]) -> None:
    """Wait, bounded, for what no event tells."""
    with anyio.fail_after(BOUND_S):
        while not ready():  # noqa: ASYNC110 - it happens in another process, or in the system
            await anyio.sleep(0.001)


def run(backend: str, scenario: Callable[[], Awaitable[None]]) -> None:
    """Run ``scenario`` in real time, bounded."""

    async def bounded() -> None:
        with anyio.fail_after(BOUND_S):
            await scenario()

    anyio.run(bounded, backend=backend)
