"""Base URLs, the proxies of the environment, request heads, and that no key is shown."""

from __future__ import annotations

import pytest

from micdrop_agent.transport.choose import open_transport
from micdrop_agent.transport.client_transport import ClientTransport
from micdrop_agent.transport.direct import DirectTransport
from micdrop_agent.transport.request_head import RequestHead
from micdrop_agent.transport.url import BaseUrl, proxy_for


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "target"),
    [
        ("https://api.example.com/v1", "api.example.com", 443, "api.example.com", "/v1/chat"),
        ("https://api.example.com/v1/", "api.example.com", 443, "api.example.com", "/v1/chat"),
        ("http://localhost:11434", "localhost", 11434, "localhost:11434", "/chat"),
        ("HTTP://LocalHost:80/", "localhost", 80, "localhost", "/chat"),
        ("http://[::1]:8080/v1", "::1", 8080, "[::1]:8080", "/v1/chat"),
        ("https://x.test/openai?api-version=1", "x.test", 443, "x.test", "/openai/chat?api-version=1"),
        ("https://bücher.test/ä", "xn--bcher-kva.test", 443, "xn--bcher-kva.test", "/%C3%A4/chat"),
        (" https://x.test/v1 ", "x.test", 443, "x.test", "/v1/chat"),
    ],
)
def test_a_base_url_is_taken_apart(url: str, host: str, port: int, authority: str, target: str) -> None:
    parsed = BaseUrl.parse(url)
    assert (parsed.host, parsed.port, parsed.authority, parsed.target("/chat")) == (host, port, authority, target)
    assert parsed.target("chat") == target


@pytest.mark.parametrize(
    "url",
    ["", "api.example.com/v1", "ftp://x.test", "https://", "https:///v1", "http://x.test:port", "http://x.test:99999",
     "http://x test/v1", "http://x.test/v 1", "http://[::1", "https://x.test\x00", f"http://{'a' * 64}.test", "http://\u00e4..test"],
)  # fmt: skip
def test_a_base_url_that_is_none_is_refused_when_the_transport_is_made(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        DirectTransport(url)


def test_queries_are_put_together_and_credentials_become_a_header_that_nothing_shows() -> None:
    url = BaseUrl.parse("https://user:p%40ss@x.test/v1?a=1")
    assert url.target("/chat?b=2") == "/v1/chat?a=1&b=2"
    head = RequestHead(url).make("/chat", {}, 0)
    assert b"authorization: Basic dXNlcjpwQHNz\r\n" in head
    shown = f"{url} {url!r} {DirectTransport('https://user:p%40ss@x.test/v1')!r}"
    assert "p@ss" not in shown
    assert "p%40ss" not in shown
    assert "dXNlcjpwQHNz" not in shown


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        ("https://x.test", {}, None),
        ("https://x.test", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://x.test", {"https_proxy": "http://p:1", "HTTPS_PROXY": "http://q:1"}, "http://p:1"),
        ("https://x.test", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://x.test", {"HTTP_PROXY": "p:1"}, "http://p:1"),
        ("http://x.test", {"HTTP_PROXY": "p:1", "REQUEST_METHOD": "GET"}, None),
        ("http://x.test", {"ALL_PROXY": "socks5://p:1"}, "socks5://p:1"),
        ("https://x.test", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "x.test"}, None),
        ("https://a.x.test", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "y, .x.test"}, None),
        ("https://a.x.test", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*.x.test"}, None),
        ("https://ax.test", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "x.test"}, "http://p:1"),
        ("https://x.test", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
        ("https://x.test:8443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "x.test:8443"}, None),
        ("http://127.0.0.1:1", {"ALL_PROXY": "http://p:1", "NO_PROXY": "localhost,127.0.0.1"}, None),
        ("http://10.1.2.3", {"ALL_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, None),
        ("http://[::1]:2", {"ALL_PROXY": "http://p:1", "NO_PROXY": "::1"}, None),
        ("http://x.test", {"ALL_PROXY": "http://p:1", "NO_PROXY": "bad/8, ,"}, "http://p:1"),
    ],
)
def test_the_proxies_of_the_environment_apply_to_their_hosts(url: str, env: dict[str, str], proxy: str | None) -> None:
    assert proxy_for(BaseUrl.parse(url), env) == proxy


def test_a_host_behind_a_proxy_is_reached_through_httpx2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "direct.test")
    assert isinstance(open_transport("https://x.test"), ClientTransport)
    assert isinstance(open_transport("https://direct.test"), DirectTransport)


def test_a_head_has_our_defaults_under_the_callers_headers_and_never_theirs_about_the_connection() -> None:
    maker = RequestHead(BaseUrl.parse("http://x.test/v1"))
    head = maker.make("/chat", {"Authorization": "Bearer k", "accept": "*/*", "content-length": "9"}, 12)
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/chat HTTP/1.1"
    assert sorted(lines[1:-2]) == [
        b"accept-encoding: identity",
        b"accept: */*",
        b"authorization: Bearer k",
        b"content-length: 12",
        b"content-type: application/json",
        b"host: x.test",
        b"user-agent: micdrop-agent",
    ]
    assert head.endswith(b"\r\n\r\n")


def test_a_head_is_made_again_only_when_something_in_it_changed() -> None:
    maker = RequestHead(BaseUrl.parse("http://x.test"))
    headers = {"a": "1"}
    first = maker.make("/p", headers, 5)
    assert maker.make("/p", headers, 6) == first.replace(b"content-length: 5", b"content-length: 6")
    headers["a"] = "2"
    assert b"a: 2\r\n" in maker.make("/p", headers, 5)
    assert b"POST /q " in maker.make("/q", headers, 5)


@pytest.mark.parametrize(
    "headers", [{"a": "secret\r\nb: c"}, {"a": "secret\x00"}, {"a": "secret\u20ac"}, {"secret b": "c"}, {"": "c"}]
)
def test_a_header_that_cannot_be_sent_is_named_and_its_value_is_not(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="header") as caught:
        RequestHead(BaseUrl.parse("http://x.test")).make("/p", headers, 0)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    if "a" in headers:
        assert "secret" not in str(caught.value)


def test_a_path_cannot_smuggle_a_second_request() -> None:
    with pytest.raises(ValueError, match="characters"):
        RequestHead(BaseUrl.parse("http://x.test")).make("/p HTTP/1.1\r\nx: y", {}, 0)
