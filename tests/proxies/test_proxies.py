"""nginx and HAProxy in front of a model server: answers whole, a barge-in that arrives, idle connections that close.

``nox -s proxies`` runs this; the proxies come from the system (``apt-get install nginx-light haproxy``).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import pytest

from micdrop_agent import ChatAgent, OpenaiAgent, Retry
from micdrop_agent.testing import ScriptedProvider, parts, say

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from micdrop_agent.testing import Reply

PROXIES: Final = ("nginx", "haproxy")
BOUND_S: Final = 20.0
WORDS: Final = ["We ", "open ", "at ", "nine."]

pytestmark = pytest.mark.skipif("MICDROP_PROXIES" not in os.environ, reason="nox -s proxies runs it")

NGINX: Final = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  keepalive_timeout 1s;
  upstream model {{ server 127.0.0.1:{upstream}; keepalive 4; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }}
  }}
}}
"""
HAPROXY: Final = """
defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 30s
  timeout http-keep-alive 500ms
  option abortonclose
frontend front
  bind 127.0.0.1:{port}
  default_backend model
backend model
  server one 127.0.0.1:{upstream}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def behind(proxy: str, reply: Reply) -> AsyncGenerator[tuple[Any, str]]:
    """A model server with ``proxy`` in front of it; the server, and the URL of the proxy."""
    command = shutil.which(proxy)
    assert command is not None, f"{proxy} is not installed: apt-get install nginx-light haproxy"
    async with ScriptedProvider([reply]) as provider, provider.listening() as url:
        upstream, port = url.split(":")[2].split("/")[0], free_port()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "proxy.conf"
            text = NGINX if proxy == "nginx" else HAPROXY
            file.write_text(text.format(folder=folder, port=port, upstream=upstream))
            words = [command, "-c", str(file), "-p", folder] if proxy == "nginx" else [command, "-f", str(file), "-db"]
            running = await anyio.open_process(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                await _listens(port, running)
                yield provider, f"http://127.0.0.1:{port}/v1"
            finally:
                running.terminate()
                with anyio.CancelScope(shield=True):
                    await running.wait()


async def _listens(port: int, running: anyio.abc.Process) -> None:
    with anyio.fail_after(BOUND_S):
        while True:
            assert running.returncode is None, "the proxy did not start"
            try:
                async with await anyio.connect_tcp("127.0.0.1", port):
                    return
            except OSError:
                await anyio.sleep(0.02)


def run(backend: str, scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(BOUND_S):
            await scenario()

    anyio.run(bounded, backend=backend)


def agent_of(kind: type[ChatAgent | OpenaiAgent], url: str) -> ChatAgent | OpenaiAgent:
    return kind(model="m", api_key="k", base_url=url, retry=Retry(max_retries=0))


every = [
    pytest.mark.parametrize("backend", ["asyncio", "trio"]),
    pytest.mark.parametrize("kind", [ChatAgent, OpenaiAgent]),
    pytest.mark.parametrize("proxy", PROXIES),
]


def each(test: Any) -> Any:
    for mark in every:
        test = mark(test)
    return test


@each
def test_an_answer_is_whole(backend: str, kind: Any, proxy: str) -> None:
    async def scenario() -> None:
        async with behind(proxy, say(*WORDS)) as (_, url), agent_of(kind, url) as agent:
            for _ in range(3):
                agent.add_user_message("When do you open?")
                assert "".join([chunk async for chunk in agent.answer()]) == "".join(WORDS)

    run(backend, scenario)


@each
def test_a_barge_in_reaches_the_server(backend: str, kind: Any, proxy: str) -> None:
    async def scenario() -> None:
        speaks = parts([{"text": WORDS[:2]}, {"silence": True}])
        async with behind(proxy, speaks) as (provider, url), agent_of(kind, url) as agent:
            agent.add_user_message("When do you open?")
            answer = agent.answer()
            await answer.receive()
            assert provider.open_connections == 1
            agent.cancel()
            await provider.until(lambda: provider.open_connections == 0)  # the server stops generating

    run(backend, scenario)


@each
def test_an_idle_connection_that_the_proxy_closed_costs_no_answer(backend: str, kind: Any, proxy: str) -> None:
    async def scenario() -> None:
        async with behind(proxy, say(*WORDS)) as (provider, url), agent_of(kind, url) as agent:
            for pause in (0.0, 1.2, 0.5, 1.0):  # around the proxies' 1 s and 0.5 s
                await anyio.sleep(pause)
                agent.add_user_message("When do you open?")
                answer = agent.answer()
                assert "".join([chunk async for chunk in answer]) == "".join(WORDS)
                assert answer.result.requests == 1
            assert len(provider.requests) == 4

    run(backend, scenario)
