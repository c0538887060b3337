"""What a failed request means: from a status, an error object or a header to a ``ProviderError``.

    HTTP status + body ──▶ status_error()  ──┐
    error in a stream  ──▶ stream_error()  ──┴──▶ ProviderError(kind, status, code, retry_after, …)

A kind follows from the provider's own code where it gave one that we know, else from the status;
never from the words of its message, which change and are translated. The one exception stands at
``_OVERLOAD_WORDS``. Tests: tests/test_provider_errors.py.
"""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Any, Final

import attrs

from micdrop_agent.errors import ProviderError
from micdrop_agent.providers.error_words import codes_of_words
from micdrop_agent.providers.failure_codes import KIND_OF_CODE, KIND_OF_STATUS, PLAIN, STRONG
from micdrop_agent.providers.json_text import as_dict, as_list, decode, encode_loosely, is_dict
from micdrop_agent.providers.secret_forms import hide_forms, shows_form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.errors import FailureKind

__all__ = ["hide_secrets", "page_title", "parse_retry_after", "status_error", "stream_error", "without_secrets"]

_MAX_MESSAGE: Final = 300
"""Characters of a provider's message that are kept: a proxy's page can be a megabyte."""

_MAX_CODE: Final = 100
_PAGE_BYTES: Final = 4096

_MAX_SEARCHED: Final = 8192

_CLIENT_ERRORS: Final = 400
_REQUEST_TIMEOUT: Final = 408
_SERVER_ERRORS: Final = 500
_ERROR_STATUSES: Final = range(400, 600)
_REDIRECTS: Final = range(300, 400)
_STATUS_TEXT: Final = re.compile(r"[45]\d\d", re.ASCII)

_OVERLOAD_WORDS: Final = re.compile(r"overload|capacity|too busy", re.IGNORECASE)
_RATE_WORDS: Final = re.compile(r"rate.?limit|too many requests", re.IGNORECASE)
"""Read only where an error inside a stream has neither a status nor a code that we know."""

_SECRETS: Final = re.compile(
    r"(?i)\b(?:bearer\s+|basic\s+)[A-Za-z0-9._~+/=-]{8,}|\b(?:sk|pk|gsk|xai|key|AIza)[-_]?[A-Za-z0-9_*-]{12,}"
)


_UNKNOWN_MODEL: Final = re.compile(r"\bInvalid model name passed in model=")
_CLASS_NAME: Final = re.compile(r"(?:litellm\.)?([A-Z][A-Za-z]+):")
"""LiteLLM begins its messages with the name of its exception: that is the code."""

_TITLE: Final = re.compile(rb"<(title|h1)\b[^<>]{0,200}>([^<]{1,300})", re.IGNORECASE)

_FACTS: Final = ("code", "type", "status", "reason", "status_code", "error_code", "raw_status_code")


@attrs.frozen(eq=False)
class _Facts:
    """What an error body says, wherever it says it."""

    message: str = ""
    codes: tuple[str, ...] = ()
    status: int | None = None

    @property
    def code(self) -> str | None:
        return self.codes[0] if self.codes else None

    @property
    def said_kind(self) -> FailureKind | None:
        """The kind that only the words tell: LiteLLM's proxy has no code for a model that it does not know."""
        return "not_found" if _UNKNOWN_MODEL.search(self.message) else None


def status_error(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    provider: str,
    secret: str | None = None,
) -> ProviderError:
    """The error for a response whose status is not 200.

    Args:
        status: HTTP status.
        headers: Names in lower case.
        body: What was read of the body; JSON of some shape, a page, or nothing.
        provider: Name of the provider.
        secret: The key in use, so that it can be cut out of an echoing message.
    """
    facts = _facts(_parse(body))
    kind = _kind_by_codes(facts.codes, strong=True) or facts.said_kind or _status_kind(status)
    words = _redirect(status, headers) or facts.message or page_title(body)
    said = f": {hide_secrets(words, secret)}" if words else ""
    request_id = headers.get("x-request-id") or headers.get("request-id") or headers.get("apim-request-id")
    return ProviderError(
        f"{provider} answered HTTP {status} ({PLAIN[kind]}){said}",
        kind=kind,
        status=status,
        code=_shown(facts.code, secret),
        retry_after=parse_retry_after(headers),
        provider=provider,
        # Our own clocks' time-outs are final (the caller has waited already); a 408 is the server's,
        # and comes when a kept-alive connection or a slow upload was given up.
        retryable=_retryable(kind) or status == _REQUEST_TIMEOUT,
        request_id=_shown(request_id, secret),
    )


def page_title(body: bytes) -> str:
    """What an HTML page says in its title: proxies answer with pages."""
    if body.lstrip()[:1] != b"<":
        return ""
    from html import unescape

    found = _TITLE.search(body[:_PAGE_BYTES])
    title = " ".join(unescape(found[2].decode("utf-8", "replace")).split()) if found else ""
    return f"an HTML page, {title!r}" if title else "an HTML page"


def _shown(value: str | None, secret: str | None) -> str | None:
    """A code or an id of the server's, without a key that it repeats, and not longer than one is."""
    return None if value is None else hide_secrets(value, secret)[:_MAX_CODE]


def _redirect(status: int, headers: Mapping[str, str]) -> str:
    """Where a redirect goes, without a query, which may hold a token; it is not followed."""
    if status not in _REDIRECTS:
        return ""
    to = headers.get("location", "").partition("?")[0]
    return f"a redirect to {to or 'nowhere'}, which is not followed; see base_url"


def stream_error(payload: object, *, provider: str, secret: str | None = None) -> ProviderError:
    """The error for an error object (or text) that came inside a response of status 200.

    What nothing is known about counts as ``server``: the provider began, and could not go on.
    """
    facts = _facts(payload)
    kind: FailureKind = _stream_kind(facts)
    words = hide_secrets(facts.message, secret) or "no reason given"
    return ProviderError(
        f"{provider} reported an error in its stream ({PLAIN[kind]}): {words}",
        kind=kind,
        status=facts.status,
        code=_shown(facts.code, secret),
        provider=provider,
        retryable=_retryable(kind) or kind == "timeout",
    )


def _retryable(kind: FailureKind) -> bool:
    # A rate limit passes; whether the wait is short enough for a call is the retry owner's to say.
    return kind in {"overloaded", "server", "connection", "empty", "rate_limit"}


def _status_kind(status: int) -> FailureKind:
    known = KIND_OF_STATUS.get(status)
    if known is not None:
        return known
    if status >= _SERVER_ERRORS:
        return "server"
    # A redirected POST would become a GET; what is wrong is the base URL.
    return "bad_request" if status >= _CLIENT_ERRORS else "protocol"


def _kind_by_codes(codes: tuple[str, ...], *, strong: bool) -> FailureKind | None:
    """The kind that the provider's codes name; ``strong``: only what a status cannot tell better."""
    for code in codes:
        kind = KIND_OF_CODE.get(code.lower())
        if kind is not None and (not strong or kind in STRONG):
            return kind
    return None


def _stream_kind(facts: _Facts) -> FailureKind:
    kind = _kind_by_codes(facts.codes, strong=True)
    if kind is None and facts.status is not None:
        kind = _status_kind(facts.status)
    kind = kind or _kind_by_codes(facts.codes, strong=False)
    if kind in {None, "server"} and facts.status is None:
        if _OVERLOAD_WORDS.search(facts.message):
            return "overloaded"
        if _RATE_WORDS.search(facts.message):
            return "rate_limit"
    return kind or "server"


def _parse(body: bytes) -> object:
    try:
        return decode(body)
    except ValueError:
        text = body.decode("utf-8", "replace").strip()
        # A page is not a message: its title would be one, but nobody needs a parser of HTML for that.
        return "" if text.startswith("<") else text


def _facts(payload: object) -> _Facts:
    """Find message, codes and status in any of the shapes that servers use."""
    if isinstance(payload, str):
        return _Facts(message=payload)
    outer = as_dict(_first(payload))  # Gemini wraps the object in a list
    error = _first(outer.get("error", outer.get("detail")))  # FastAPI: a list of validation errors
    inner = as_dict(error)
    message = next((m for m in _messages(outer, inner, error) if isinstance(m, str) and m), "")
    codes: list[str] = []
    status: int | None = None
    for source in (inner, outer):
        for name in _FACTS:
            value = source.get(name)
            number = _http_status(value)
            if number is not None:
                status = status or number
            elif isinstance(value, str) and value and value not in {"error", "response.failed"}:
                codes.append(value)
    codes += _inner_codes(inner)
    named = _CLASS_NAME.match(message)
    if named is not None and named[1].lower() in KIND_OF_CODE:
        codes.insert(0, named[1])
    return _Facts(message, (*codes, *codes_of_words(message)), status)


def _first(value: object) -> object:
    values = as_list(value)
    return values[0] if values else value


def _messages(outer: dict[str, Any], inner: dict[str, Any], error: object) -> list[object]:
    nested = outer.get("message")
    return [
        error if isinstance(error, str) else None,
        inner.get("message"),
        inner.get("msg"),
        *(outer.get(name) for name in ("error_message", "error_msg")),
        # Mistral puts FastAPI's errors below its own "message".
        encode_loosely(nested) if is_dict(nested) else nested,
    ]


def _inner_codes(inner: dict[str, Any]) -> list[str]:
    """Codes one level deeper: Azure's ``innererror``, Google's ``details``."""
    found: list[str] = []
    for entry in (inner.get("innererror"), inner.get("metadata"), *as_list(inner.get("details"))):
        values = [as_dict(entry).get(name) for name in ("code", "reason", "error_type")]
        found += [value for value in values if isinstance(value, str) and value]
    return found


def _http_status(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and _STATUS_TEXT.fullmatch(value):
        value = int(value)
    return value if isinstance(value, int) and value in _ERROR_STATUSES else None


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks us to wait; 0 is "at once", ``None`` is "not said".

    Milliseconds if they parse (``retry-after-ms``), else seconds, else a date; a date in the past
    means now. The server's own ``date`` is the clock for it: the wait is right although the
    clocks of the two machines differ.
    """
    # LiteLLM's proxy passes on the headers of the server behind it under names of its own.
    milliseconds = _number(headers.get("retry-after-ms") or headers.get("llm_provider-retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    value = headers.get("retry-after") or headers.get("llm_provider-retry-after")
    seconds = _number(value)
    if seconds is not None:
        return max(0.0, seconds)
    until = _date(value)
    if until is None:
        return None
    now = _date(headers.get("date"))
    return max(0.0, until - (time.time() if now is None else now))


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _date(value: str | None) -> float | None:
    """Seconds since the epoch."""
    if not value:
        return None
    from datetime import UTC  # a rare need, and 6 ms of import
    from email.utils import parsedate_to_datetime

    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def hide_secrets(text: str, secret: str | None = None) -> str:
    """``text`` on one line, bounded, without what looks like a key."""
    text = hide_forms(text[:_MAX_SEARCHED], secret)
    # Looked through far beyond what is kept: a key that a limit cuts in two is still one.
    text = _SECRETS.sub("***", " ".join(text[:_MAX_SEARCHED].split()))
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"


def without_secrets(error: ProviderError, secret: str | None) -> ProviderError:
    """``error``, or one like it without its causes, if it or a cause of it shows a key.

    What a client's own errors quote (a header that it cannot send, a line that it cannot read) is told
    with them, and a report shows the causes too.
    """
    each: BaseException | None = error
    clean = True
    while each is not None and clean:
        text = str(each)
        clean = not shows_form(text[:_MAX_SEARCHED], secret) and not _SECRETS.search(text)
        each = each.__cause__ or each.__context__
    if clean:
        return error
    return ProviderError(
        hide_secrets(str(error), secret),
        kind=error.kind,
        status=error.status,
        code=_shown(error.code, secret),
        retry_after=error.retry_after,
        provider=error.provider,
        text_sent=error.text_sent,
        retryable=error.retryable,
        request_id=_shown(error.request_id, secret),
    )
