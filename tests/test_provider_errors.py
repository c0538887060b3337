"""The failure taxonomy: statuses, codes, waits, and what must not be in a message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.providers.failures import hide_secrets, parse_retry_after, status_error, stream_error


def error_of(status: int, body: Any = None, headers: dict[str, str] | None = None) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return status_error(status, headers or {}, raw, provider="p", secret="sk-secret")


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "bad_request", False),
        (405, "bad_request", False),
        (413, "bad_request", False),
        (422, "bad_request", False),
        (401, "auth", False),
        (403, "auth", False),
        (402, "quota", False),
        (404, "not_found", False),
        (408, "timeout", True),
        (409, "server", True),
        (425, "server", True),
        (429, "rate_limit", True),
        (500, "server", True),
        (502, "server", True),
        (503, "overloaded", True),
        (529, "overloaded", True),
        (307, "protocol", False),
    ],
)
def test_a_status_says_what_kind_of_failure_it_is(status: int, kind: str, retryable: bool) -> None:
    error = error_of(status, b"")
    assert (error.kind, error.retryable, error.status, error.provider) == (kind, retryable, status, "p")


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, {"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "no credit"}}, "quota"),
        (429, {"error": {"code": "billing_hard_limit_reached", "message": "x"}}, "quota"),
        (429, {"error": {"code": "rate_limit_exceeded", "type": "requests", "message": "slow"}}, "rate_limit"),
        (
            400,
            {"error": {"code": "context_length_exceeded", "type": "invalid_request_error", "message": "x"}},
            "context_length",
        ),
        (400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "x"}}, "context_length"),
        (
            400,
            {
                "error": {
                    "code": "content_filter",
                    "message": "x",
                    "innererror": {"code": "ResponsibleAIPolicyViolation"},
                }
            },
            "content_filter",
        ),
        (
            400,
            [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}],
            "auth",
        ),
        (400, {"error": {"code": "model_not_found", "message": "x"}}, "not_found"),
        (400, {"error": {"type": "invalid_request_error", "code": None, "message": "x"}}, "bad_request"),
        (
            422,
            {"object": "error", "message": {"detail": [{"msg": "x"}]}, "type": "invalid_request_error"},
            "bad_request",
        ),
        (422, {"detail": [{"loc": ["body"], "msg": "x", "type": "missing"}]}, "bad_request"),
        (500, {"error": "boom"}, "server"),
        (429, {"error": {"type": "exceeded_current_quota_error", "message": "x"}}, "quota"),
        (400, {"code": "Arrearage", "message": "x", "request_id": "r"}, "quota"),
        (400, {"error": {"code": "data_inspection_failed", "message": "x"}}, "content_filter"),
    ],
)
def test_a_providers_code_is_more_exact_than_its_status(status: int, body: Any, kind: str) -> None:
    error = error_of(status, body)
    assert error.kind == kind
    assert error.retryable == (kind in {"rate_limit", "server"})


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"error": {"code": 503, "message": "Provider overloaded"}}, "overloaded"),
        ({"error": {"code": 500, "type": "server_error", "message": "x"}}, "server"),
        ({"error": {"code": 400, "type": "invalid_request_error", "message": "context size"}}, "bad_request"),
        ({"code": 400, "type": "invalid_request_error", "message": "x"}, "bad_request"),
        ({"error": {"code": "429", "message": "x"}}, "rate_limit"),
        ({"object": "error", "message": "overloaded"}, "overloaded"),
        ({"error": "Rate limit reached"}, "rate_limit"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, "overloaded"),
        ("went wrong", "server"),
        ("", "server"),
        (None, "server"),
        ([], "server"),
    ],
)
def test_an_error_inside_a_stream_says_what_kind_it_is(payload: Any, kind: str) -> None:
    assert stream_error(payload, provider="p").kind == kind


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "250", "retry-after": "60"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "0"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "Sun, 29 Nov 2026 10:00:07 GMT", "date": "Sun, 29 Nov 2026 10:00:00 GMT"}, 7.0),
        ({"retry-after": "Sun, 99 Nov 2026 10:00:07 GMT"}, None),
    ],
)
def test_a_wait_is_read_in_each_of_its_forms(headers: dict[str, str], wait: float | None) -> None:
    assert parse_retry_after(headers) == wait
    assert error_of(429, b"", headers).retry_after == wait


@given(value=st.text(), date=st.text())
def test_no_header_breaks_the_reading_of_a_wait(value: str, date: str) -> None:
    wait = parse_retry_after({"retry-after": value, "retry-after-ms": date, "date": date})
    assert wait is None or wait >= 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "code", "type", "message", "detail", "details", "status", "innererror", "msg"]),
            inner,
            max_size=4,
        )
    ),
)


@given(payload=JSON, status=st.integers(300, 599))
def test_no_error_body_is_odd_enough_to_hide_the_failure(payload: Any, status: int) -> None:
    assert error_of(status, payload).status == status
    assert stream_error(payload, provider="p").kind


@given(body=st.binary(max_size=60))
def test_an_error_body_may_be_anything(body: bytes) -> None:
    assert len(str(error_of(500, body))) < 500


@pytest.mark.parametrize(
    "text",
    [
        "bad key sk-secret",
        "Incorrect API key provided: sk-proj-abcdefghijklmnop",
        "Authorization: Bearer abcdefgh.ijkl-mnop",
    ],
)
def test_no_key_is_in_a_message(text: str) -> None:
    message = str(error_of(401, {"error": {"message": text}}))
    assert "sk-secret" not in message
    assert "abcdefgh" not in message


def test_a_page_or_a_long_message_does_not_fill_the_log() -> None:
    assert "HTML" in str(error_of(502, b"<html>" + b"x" * 100_000))
    assert len(str(error_of(500, {"error": {"message": "x" * 100_000}}))) < 500
    assert hide_secrets("a\n\n b") == "a b"


def test_the_facts_of_an_error_are_attributes() -> None:
    headers = {"x-request-id": "req_1", "retry-after": "2"}
    error = error_of(429, {"error": {"code": "rate_limit_exceeded", "message": "slow"}}, headers)
    assert (error.code, error.request_id, error.retry_after, error.status) == ("rate_limit_exceeded", "req_1", 2.0, 429)
