"""What LiteLLM's proxy says of failures, in its own words: class names in messages, types and headers of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from micdrop_agent.providers.failures import status_error

if TYPE_CHECKING:
    from micdrop_agent.errors import FailureKind

INVALID = "Invalid model name passed in model=gpt-9. Call `/v1/models` to view available models for your key."


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"message": "No connected db.", "type": "no_db_connection", "code": "400"}, "auth"),
        (401, {"message": "litellm.AuthenticationError: AuthenticationError: bad key", "code": "401"}, "auth"),
        (400, {"message": f"/chat/completions: {INVALID}", "type": "None", "code": "400"}, "not_found"),
        (400, {"message": f"litellm.BadRequestError: {INVALID}", "type": "invalid_request_error"}, "not_found"),
        (
            400,
            {
                "message": "litellm.ContextWindowExceededError: litellm.BadRequestError: long",
                "type": "invalid_request_error",
            },
            "context_length",
        ),
        (400, {"message": "litellm.ContentPolicyViolationError: no", "code": "400"}, "content_filter"),
        (400, {"message": "litellm.BadRequestError: temperature is wrong", "code": "400"}, "bad_request"),
        (429, {"message": "litellm.RateLimitError: slow down", "type": "throttling_error"}, "rate_limit"),
        (500, {"message": "litellm.InternalServerError: down", "code": "500"}, "server"),
        (503, {"message": "litellm.ServiceUnavailableError: down", "code": "503"}, "overloaded"),
    ],
)
def test_its_bodies_have_the_kind_of_what_failed(status: int, error: dict[str, Any], kind: FailureKind) -> None:
    failure = status_error(status, {}, json.dumps({"error": error}).encode(), provider="chat")

    assert (failure.kind, failure.status) == (kind, status)


def test_the_wait_that_the_model_server_behind_it_asked_for_is_kept() -> None:
    body = b'{"error": {"message": "litellm.RateLimitError: slow down"}}'

    assert status_error(429, {"llm_provider-retry-after": "7"}, body, provider="chat").retry_after == 7.0
    assert status_error(429, {"retry-after": "2"}, body, provider="chat").retry_after == 2.0
