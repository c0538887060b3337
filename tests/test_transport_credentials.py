"""No key reaches a host that it was not given for, and what is set up wrongly is told at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final
from unittest import mock
from urllib.parse import urlsplit

import anyio
import httpx
import httpx2
import openai
import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from transport_support import HELLO, RawServer, always, ask, each_backend, outcome, run, with_length

from micdrop_agent import (
    AnthropicAgent,
    ChatAgent,
    GeminiAgent,
    MistralAgent,
    OpenaiAgent,
    ProviderError,
    Retry,
    Timeouts,
)
from micdrop_agent.providers.kinds import KINDS
from micdrop_agent.testing import run_virtual
from micdrop_agent.transport.client_transport import ClientTransport
from micdrop_agent.transport.direct import DirectTransport

if TYPE_CHECKING:
    from pathlib import Path

    from transport_support import Connection

AGENTS: Final[dict[str, Any]] = {
    "openai": OpenaiAgent,
    "mistral": MistralAgent,
    "chat": ChatAgent,
    "anthropic": AnthropicAgent,
    "gemini": GeminiAgent,
}
KEYS: Final = {kind.key_variable: f"env-{name}-0123456789" for name, kind in KINDS.items() if kind.key_variable}
HOMES: Final = {
    f"env-{name}-0123456789": urlsplit(kind.base_url).hostname
    for name, kind in KINDS.items()
    if kind.key_variable and kind.base_url
}
URLS: Final = (
    None,
    "http://gateway.test/v1",
    "https://gateway.test/v1/",
    "http://localhost:11434/v1",
    "https://api.openai.com/v1",
    "https://api.openai.com.evil.test/v1",
    "https://evil.test/https://api.openai.com/v1",
    "https://api.openai.com@evil.test/v1",
    "http://api.openai.com/v1",
    "https://api.openai.com:8443/v1",
    "https://API.OPENAI.COM./v1",
    "https://api.mistral.ai/v1",
)
PROVIDERS: Final = {urlsplit(kind.base_url).hostname for kind in KINDS.values() if kind.base_url}


class Asked:
    """What went over the wire, to which host, whoever sent it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bool, str]] = []

    async def send(self, client: Any, request: Any, **_: Any) -> Any:
        url = request.url
        shown = repr(sorted(request.headers.items()))
        self.requests.append((url.host, url.scheme == "https", shown))
        return type_of_response(client)(200, content=HELLO.partition(b"\r\n\r\n")[2], request=request)

    async def connect(self, host: str, port: int, tls: bool) -> Any:
        del port
        asked = self

        class Wire:
            """Takes a request and hangs up."""

            async def send(self, item: bytes) -> None:
                asked.requests.append((host, tls, item.partition(b"\r\n\r\n")[0].decode("latin-1")))

            async def receive(self, max_bytes: int = 0) -> bytes:
                del max_bytes
                raise anyio.EndOfStream

            async def aclose(self) -> None:
                await anyio.lowlevel.checkpoint()

            def extra(self, _: object, default: object = None) -> object:
                return default

        return Wire()


def type_of_response(client: Any) -> Any:
    return httpx2.Response if isinstance(client, httpx2.AsyncClient) else httpx.Response


def make_client(kind: str, url: str | None, key: str | None) -> Any:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    if kind == "none":
        return None
    if kind in {"httpx2", "httpx"}:
        package: Any = httpx2 if kind == "httpx2" else httpx
        return package.AsyncClient(headers=headers, trust_env=False, **({} if url is None else {"base_url": url}))
    return openai.AsyncOpenAI(api_key=key or "sdk-0123456789", base_url=url or "https://api.openai.com/v1")


@settings(max_examples=60, deadline=None)
@given(
    agent=st.sampled_from(sorted(AGENTS)),
    base_url=st.sampled_from(URLS),
    kind=st.sampled_from(["none", "none", "httpx2", "httpx", "sdk"]),
    client_url=st.sampled_from(URLS),
    api_key=st.sampled_from([None, "given-0123456789"]),
    client_key=st.sampled_from([None, "client-0123456789"]),
    environment=st.sets(st.sampled_from(sorted(KEYS))),
)
def test_no_key_reaches_a_host_that_it_was_not_given_for(
    agent: str,
    base_url: str | None,
    kind: str,
    client_url: str | None,
    api_key: str | None,
    client_key: str | None,
    environment: set[str],
) -> None:
    asked = Asked()
    options: dict[str, Any] = {"model": "m", "raise_on_failure": False, "retry": Retry(max_retries=0)}
    options |= {"api_key": api_key, "base_url": base_url}

    async def scenario() -> None:
        client = make_client(kind, client_url, client_key)
        if client is None:
            options["connect"] = asked.connect
        try:
            made = AGENTS[agent](client=client, **options)
        except (ProviderError, ValueError):
            return  # refused when it is made: nothing was sent
        async with made:
            made.add_user_message("hi")
            await made.answer().wait()

    async def sends(client: Any, request: Any, **options: Any) -> Any:
        return await asked.send(client, request, **options)

    with (
        mock.patch.dict(os.environ, {name: KEYS[name] for name in environment}),
        mock.patch.object(httpx2.AsyncClient, "send", sends),
        mock.patch.object(httpx.AsyncClient, "send", sends),
    ):
        for name in KEYS.keys() - environment:
            os.environ.pop(name, None)
        run_virtual("asyncio", scenario)

    # The option's server, else the client's, else the provider's.
    given_for = host_of(base_url) or (host_of(client_url) if kind != "none" else None)
    homes = PROVIDERS if given_for is None else {given_for}
    for host, tls, sent in asked.requests:
        assert_keys_are_at_home(host, tls=tls, sent=sent)
        assert host.lower().rstrip(".") in {home.rstrip(".") for home in homes if home}
        assert kind != "none" or "client-" not in sent


def host_of(url: str | None) -> str | None:
    return None if url is None else urlsplit(url).hostname


def assert_keys_are_at_home(host: str, *, tls: bool, sent: str) -> None:
    """A key of the environment goes to its own provider, over TLS."""
    for key, home in HOMES.items():
        assert key not in sent or (host.lower().rstrip("."), tls) == (home, True)


@pytest.mark.parametrize("make", [OpenaiAgent, MistralAgent, ChatAgent])
@pytest.mark.parametrize("package", [httpx2, httpx])
def test_a_client_with_a_server_of_its_own_is_asked_there(make: Any, package: Any) -> None:
    agent = make(client=package.AsyncClient(base_url="http://gateway.test/v1"), model="m")
    assert agent.base_url == "http://gateway.test/v1"
    same = make(
        client=package.AsyncClient(base_url="http://gateway.test/v1/"), base_url="http://gateway.test/v1", model="m"
    )
    assert same.base_url == "http://gateway.test/v1"
    with pytest.raises(ValueError, match=r"gateway\.test/v1.*leave one"):
        make(client=package.AsyncClient(base_url="http://gateway.test/v1"), base_url="http://other.test/v1", model="m")


def test_the_own_server_needs_no_key_and_the_provider_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    for agent in AGENTS.values():
        agent(base_url="http://localhost:8080/v1", model="m")
    for agent in (OpenaiAgent, MistralAgent, AnthropicAgent, GeminiAgent, ChatAgent):
        with pytest.raises(ProviderError, match="API key"):
            agent(model="m")


# -- what is set up wrongly


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"HTTPS_PROXY": "ftp://p:1"}, "HTTPS_PROXY .* scheme 'ftp'"),
        ({"HTTPS_PROXY": "http://p:99999"}, "HTTPS_PROXY"),
        ({"ALL_PROXY": "http://user:secret@"}, "ALL_PROXY .* host"),
        ({"HTTPS_PROXY": "socks5://p:1"}, r"httpx2\[socks\]"),
        ({"SSL_CERT_FILE": "/nowhere.pem"}, "SSL_CERT_FILE names '/nowhere.pem'"),
        ({"SSL_CERT_DIR": "/nowhere"}, "SSL_CERT_DIR"),
        ({"SSL_CERT_FILE": "/nowhere.pem", "HTTPS_PROXY": "http://p:1"}, "SSL_CERT_FILE"),
    ],
)
def test_an_environment_that_cannot_work_is_told_when_the_agent_is_made(
    environment: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=words) as caught:
        OpenaiAgent(api_key="sk-0123456789")
    assert "secret" not in str(caught.value)
    OpenaiAgent(client=openai.AsyncOpenAI(api_key="sk-0123456789", http_client=httpx2.AsyncClient(trust_env=False)))


def authority() -> tuple[Any, Any]:
    import ssl

    made = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.issue_cert("localhost").configure_cert(context)
    return made, context


async def not_tls(connection: Connection) -> None:
    await connection.stream.receive()
    await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def failure(transport: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await transport.post("/x", {}, b"{}")
    await transport.aclose()
    return caught.value


@each_backend
@pytest.mark.parametrize("kind", ["own", "httpx2", "httpx"])
def test_tls_that_cannot_work_fails_at_once_and_says_why(backend: str, kind: str) -> None:
    async def scenario() -> None:
        _, context = authority()
        server, plain_server = RawServer(always(HELLO)), RawServer(not_tls)
        async with server.listening(context) as url, plain_server.listening() as plain:
            for address, words in ((url, "SSL_CERT_FILE"), (plain.replace("http://", "https://"), "http://")):
                client: Any = None if kind == "own" else (httpx2 if kind == "httpx2" else httpx).AsyncClient()
                if client is None:
                    error = await failure(DirectTransport(address))
                else:
                    error = await failure(ClientTransport(client, address))
                    await client.aclose()
                assert (error.kind, error.retryable) == ("connection", False)
                assert words in str(error)

    run(backend, scenario)


@each_backend
@pytest.mark.parametrize("status", ["413 Too Large", "403 Forbidden"])
@pytest.mark.parametrize("keep", [True, False])
def test_an_early_refusal_of_a_large_request_is_read_over_tls_too(backend: str, status: str, keep: bool) -> None:
    import ssl

    async def refuse(connection: Connection) -> None:
        await connection.request(body=False)
        await connection.send(with_length(b'{"error": {"message": "no"}}', status, kind="application/json"))
        if keep:
            await anyio.sleep_forever()

    async def scenario() -> None:
        made, context = authority()
        server = RawServer(refuse, always(HELLO))
        async with server.listening(context) as url:
            trusting = ssl.create_default_context()
            made.configure_trust(trusting)
            transport = DirectTransport(url, tls_context=trusting)
            async with await transport.post("/x", {}, b"x" * 8_000_000) as response:
                assert response.status == int(status[:3])
            async with await transport.post("/x", {}, b"{}") as response:
                assert response.status == 200
            assert server.connections == 2
            await transport.aclose()

    run(backend, scenario)


@each_backend
@pytest.mark.parametrize(("status", "kind"), [("407 Proxy Authentication Required", "auth"), ("502 Bad", "connection")])
def test_a_proxy_that_refuses_is_told_with_its_status(
    backend: str, status: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        proxy = RawServer(always(with_length(b"", status)))
        async with proxy.listening() as url:
            place = urlsplit(url).netloc
            monkeypatch.setenv("HTTPS_PROXY", f"http://user:wrong-secret@{place}")
            async with OpenaiAgent(
                api_key="sk-0123456789abc",
                base_url="https://x.test/v1",
                raise_on_failure=False,
                retry=Retry(max_retries=2, first_wait=0.01),
                timeouts=Timeouts(first_chunk=20),
            ) as agent:
                error = await ask(agent)
        assert (outcome(error), error.retryable) == (f"<{kind} {status[:3]}>", kind == "connection")
        assert "wrong-secret" not in str(error)
        assert len(proxy.seen) == (3 if kind == "connection" else 1)

    run(backend, scenario)


def test_certificates_that_are_none_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from micdrop_agent.transport import tls

    file = tmp_path / "empty.pem"
    file.write_text("nothing")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setattr(tls, "_context", None)
    with pytest.raises(ProviderError, match="SSL_CERT_FILE") as caught:
        tls.make_default_context()
    assert not caught.value.retryable
