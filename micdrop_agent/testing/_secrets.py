"""What must never be written to a cassette: keys, cookies, organisation ids, and whatever the user names.

    Redactor ── clean(request, headers, pieces) ──▶ text to write ── leaks(text) ──▶ nothing, or a refusal

A secret is found as it is, escaped as JSON writes it, escaped as a URL writes it, in hexadecimal, and within base64; in
a body also where it begins in one piece and ends in another. Nothing in here does I/O.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus, unquote_plus

from micdrop_agent.providers.json_text import as_dict, as_list
from micdrop_agent.testing._tape import RequestSeen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from micdrop_agent.testing._tape import Tape

__all__ = ["REMOVED", "Redactor"]

REMOVED: Final = "[removed]"
"""What stands where something was removed."""

SHORTEST: Final = 8
"""Characters of the shortest secret that is searched for in texts; shorter ones are found by their header only."""

_PRIVATE_HEADER: Final = re.compile(
    r"auth|key|token|secret|cookie|credential|passw|signature|session|organi[sz]ation|project|account|tenant",
    re.IGNORECASE,
)
_HARMLESS: Final = re.compile(r"ratelimit|limit-|^x-request-id$|^access-control|keep-?alive|-tokens?-", re.IGNORECASE)
_PRIVATE_QUERY: Final = re.compile(
    r"(?P<name>[\w.-]*(?:key|token|secret|auth|sig|signature|passw\w*|credential)[\w.-]*)=(?P<value>[^&#]*)",
    re.IGNORECASE,
)
_SCHEME: Final = re.compile(r"^(?:bearer|basic|token|apikey|api-key)\s+", re.IGNORECASE)
_KNOWN_SHAPES: Final = re.compile(
    r"\bsk-[A-Za-z0-9_-]{16,}|\bsk_[A-Za-z0-9]{16,}|\bgsk_[A-Za-z0-9]{16,}|\bxai-[A-Za-z0-9]{16,}|\bAIza[A-Za-z0-9_-]{20,}"
    r"|\borg-[A-Za-z0-9]{8,}|\bproj_[A-Za-z0-9]{8,}|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"
    r"|\bAKIA[A-Z0-9]{16}\b"
)
"""How keys, organisation ids and signed tokens of well-known services look."""


class Redactor:
    """Removes what is secret.

    Args:
        redact: Further strings and patterns to remove.
    """

    def __init__(self, redact: Iterable[str | re.Pattern[str]] = ()) -> None:
        self._secrets: dict[str, None] = {}
        self._patterns: list[re.Pattern[str]] = [_KNOWN_SHAPES]
        self._search: re.Pattern[bytes] | None = None
        for one in redact:
            if isinstance(one, str):
                self._add(one, shortest=1)
            else:
                self._patterns.append(one)

    # -- learning

    def learn(self, path: str, headers: Iterable[tuple[str, str]]) -> None:
        """Note the keys of one request or response: they are removed from everything, not only from these headers."""
        for name, value in headers:
            if is_private(name):
                self._learn_header(value)
        for match in _PRIVATE_QUERY.finditer(path.partition("?")[2]):
            self._add(match["value"])
            self._add(unquote_plus(match["value"]))

    def _learn_header(self, value: str) -> None:
        self._add(value)
        credentials = _SCHEME.sub("", value)
        self._add(credentials)
        if value.lower().startswith("basic"):
            try:
                user, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
            except (binascii.Error, ValueError):
                return
            self._add(user)
            self._add(password)
        for cookie in value.split(";"):
            self._add(cookie.partition("=")[2].strip())

    def _add(self, secret: str, *, shortest: int = SHORTEST) -> None:
        if len(secret) >= shortest and REMOVED not in secret and secret not in self._secrets:
            self._secrets[secret] = None
            self._search = None

    def _forms(self) -> list[bytes]:
        """Every secret in every way in which it may be written, the longest first."""
        found: set[bytes] = set()
        for secret in self._secrets:
            texts = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
            texts |= {text.replace("/", "\\/") for text in tuple(texts)}
            escaped = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
            texts |= escaped | {re.sub(r"%..", lambda match: match[0].lower(), text) for text in escaped}
            found |= {text.encode() for text in texts}
            found |= set(_packed_forms(secret.encode()))
        return sorted(found, key=len, reverse=True)

    # -- removing

    def text(self, text: str) -> str:
        """``text`` without its secrets."""
        return self.joined(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def joined(self, data: bytes) -> bytes:
        """``data`` without its secrets."""
        return b"".join(self.pieces([data]))

    def pieces(self, pieces: Sequence[bytes]) -> list[bytes]:
        """The same pieces without the secrets; one that lies in several is removed from all of them."""
        whole = b"".join(pieces)
        spans = self._spans(whole)
        if not spans:
            return list(pieces)
        cleaned: list[bytes] = []
        begin = 0
        for piece in pieces:
            cleaned.append(_cut(whole, begin, begin + len(piece), spans))
            begin += len(piece)
        return cleaned

    def _spans(self, data: bytes) -> list[tuple[int, int]]:
        if self._search is None:
            forms = self._forms()
            self._search = re.compile(b"|".join(map(re.escape, forms)) if forms else b"(?!)")
        found = [match.span() for match in self._search.finditer(data)]
        # latin-1 keeps one character a byte, so that places in the text are places in the bytes.
        text = data.decode("latin-1")
        found += [match.span() for pattern in self._patterns for match in pattern.finditer(text)]
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(span for span in found if span[0] < span[1]):
            if merged and begin < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return merged

    def path(self, path: str) -> str:
        """A request's path without the secrets in its query."""
        plain, mark, query = path.partition("?")
        cleaned = _PRIVATE_QUERY.sub(lambda match: f"{match['name']}={REMOVED}", query)
        return self.text(plain + mark + cleaned)

    def headers(self, headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Headers without the values of the private ones."""
        return [(name, REMOVED if is_private(name) else self.text(value)) for name, value in headers]

    def request(self, method: str, host: str, path: str, headers: Mapping[str, str], body: bytes) -> RequestSeen:
        """A request as it may be written."""
        return RequestSeen(
            method, self.text(host), self.path(path), dict(self.headers(headers.items())), self.joined(body)
        )

    # -- the last look

    def leaks(self, text: str, tape: Tape) -> str | None:
        """Where a secret is left in the text of a cassette; ``None`` if there is none.

        Also where a model wrote it piece by piece: the strings of each body's events are put together.
        """
        if self._spans(text.encode("utf-8", "surrogateescape")):
            return "the file"
        for number, recording in enumerate(tape.recordings, 1):
            body = b"".join(piece for _, piece in recording.body)
            if self._spans(body) or any(
                self._spans(told.encode("utf-8", "surrogatepass")) for told in told_by_events(body)
            ):
                return f"the response to request {number}"
            if self._spans(recording.request.body):
                return f"request {number}"
        return None


def _packed_forms(secret: bytes) -> Iterator[bytes]:
    """``secret`` in hexadecimal, and within base64: what is written of it does not depend on what stands around it."""
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    for before in range(3):
        packed = base64.b64encode(bytes(before) + secret)
        # A character of base64 is six bits: those at the edges hold bits of the neighbours too.
        core = packed[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]
        if len(core) >= SHORTEST:
            yield core
            yield core.replace(b"+", b"-").replace(b"/", b"_")


def is_private(name: str) -> bool:
    """Whether a header of that name holds something that must not be written."""
    return bool(_PRIVATE_HEADER.search(name)) and not _HARMLESS.search(name)


def _cut(whole: bytes, begin: int, end: int, spans: list[tuple[int, int]]) -> bytes:
    """``whole[begin:end]`` with the mark where a span begins, and nothing where one goes on."""
    parts: list[bytes] = []
    at = begin
    for first, last in spans:
        if last <= begin or first >= end:
            continue
        parts.append(whole[at : max(first, at)])
        if first >= begin:
            parts.append(REMOVED.encode())
        at = min(last, end)
    parts.append(whole[at:end])
    return b"".join(parts)


def told_by_events(body: bytes) -> list[str]:
    """What the events of a stream say together: the strings at each place of their JSON, joined."""
    told: dict[str, list[str]] = {}
    for line in body.splitlines():
        if line.startswith(b"data:"):
            with suppress(ValueError):
                for place, text in _strings(json.loads(line[5:])):
                    told.setdefault(place, []).append(text)
    return ["".join(parts) for parts in told.values() if len(parts) > 1]


def _strings(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """The strings of a JSON value, each with the names above it."""
    if isinstance(value, str):
        yield place, value
        return
    for name, inner in as_dict(value).items():
        yield from _strings(inner, f"{place}.{name}")
    for inner in as_list(value):
        yield from _strings(inner, place)
