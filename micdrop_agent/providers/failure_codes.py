"""Tables: what providers' error codes and HTTP statuses mean; read by ``_errors``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from micdrop_agent.providers.code_sources import CODES

if TYPE_CHECKING:
    from micdrop_agent.errors import FailureKind

__all__ = ["KIND_OF_CODE", "KIND_OF_STATUS", "PLAIN", "STRONG"]

KIND_OF_CODE: Final[dict[str, FailureKind]] = {
    # Money. Some come with status 429, and must not be waited for.
    "insufficient_quota": "quota",
    "insufficient_balance": "quota",
    "insufficient_credits": "quota",
    "insufficient_user_quota": "quota",
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "billing_error": "quota",
    "payment_required": "quota",
    "credits_exhausted": "quota",
    "spend_limit_reached": "quota",
    "exceeded_current_quota_error": "quota",  # Moonshot
    "quota_exceeded": "quota",
    "pre_consume_token_quota_failed": "quota",  # gateways of the one-api family
    "arrearage": "quota",  # Alibaba
    "insufficient_funds": "quota",
    # The conversation is longer than the model's window.
    "context_length_exceeded": "context_length",
    "context_window_exceeded": "context_length",
    "exceed_context_size_error": "context_length",
    "exceed_context_size": "context_length",
    "contextwindowexceedederror": "context_length",  # LiteLLM: the name of its exception
    # A filter.
    "content_filter": "content_filter",
    "content_policy_violation": "content_filter",
    "responsibleaipolicyviolation": "content_filter",
    "moderation_blocked": "content_filter",
    "data_inspection_failed": "content_filter",  # Alibaba
    "datainspectionfailed": "content_filter",
    "contentpolicyviolationerror": "content_filter",  # LiteLLM
    # Who asks, and for what.
    "authenticationerror": "auth",  # LiteLLM
    "permissiondeniederror": "auth",
    "no_db_connection": "auth",  # LiteLLM: without its database it knows no keys
    "notfounderror": "not_found",
    "budgetexceedederror": "quota",
    "invalid_api_key": "auth",
    "incorrect_api_key": "auth",
    "api_key_invalid": "auth",
    "authentication_error": "auth",
    "invalid_authentication": "auth",
    "invalid_authentication_error": "auth",
    "invalidapikey": "auth",
    "access_denied": "auth",
    "account_deactivated": "auth",
    "permission_denied": "auth",
    "permission_error": "auth",
    "unauthenticated": "auth",
    "unauthorized": "auth",
    "model_not_found": "not_found",
    "deploymentnotfound": "not_found",
    "not_found_error": "not_found",
    "not_found": "not_found",
    "invalid_model": "not_found",
    "model_not_exist": "not_found",
    "resource_not_found_error": "not_found",
    # Too much at once.
    "ratelimiterror": "rate_limit",  # LiteLLM
    "serviceunavailableerror": "overloaded",
    "internalservererror": "server",
    "apiconnectionerror": "server",
    "apierror": "server",
    "rate_limit_exceeded": "rate_limit",
    "rate_limit_error": "rate_limit",
    "rate_limited": "rate_limit",
    "rate_limit": "rate_limit",
    "too_many_requests": "rate_limit",
    "resource_exhausted": "rate_limit",
    "tokens_limit_exceeded": "rate_limit",
    "rate_limit_reached_error": "rate_limit",
    "throttling": "rate_limit",
    "service_tier_capacity_exceeded": "rate_limit",  # Mistral
    "overloaded_error": "overloaded",
    "overloaded": "overloaded",
    "slow_down": "overloaded",
    "engine_overloaded": "overloaded",
    "engine_overloaded_error": "overloaded",
    "service_unavailable": "overloaded",
    "unavailable": "overloaded",
    "capacity_exceeded": "overloaded",
    "server_overloaded": "overloaded",
    "server_error": "server",
    "internal_error": "server",
    "internal_server_error": "server",
    "api_error": "server",
    "bad_gateway": "server",
    "timeout": "timeout",
    "vector_store_timeout": "timeout",
    "invalid_request_error": "bad_request",
    "invalid_prompt": "bad_request",
    "invalid_argument": "bad_request",
    "badrequesterror": "bad_request",
    "invalid_request": "bad_request",
}

KIND_OF_CODE.update({code: kind for row in CODES for kind, codes in row.codes.items() for code in codes})

KIND_OF_STATUS: Final[dict[int, FailureKind]] = {
    401: "auth",
    402: "quota",
    403: "auth",
    404: "not_found",
    407: "auth",  # of a proxy
    408: "timeout",
    409: "server",
    425: "server",
    429: "rate_limit",
    498: "overloaded",  # Groq: no capacity at this tier
    503: "overloaded",
    504: "server",
    529: "overloaded",  # Anthropic and gateways in front of it
}

STRONG: Final = frozenset(
    {"quota", "context_length", "content_filter", "auth", "not_found", "rate_limit", "overloaded", "empty"}
)
"""Kinds that a code names more exactly than the status it came with (429 for an empty account, 400 for a model
whose call cannot be read)."""

PLAIN: Final[dict[FailureKind, str]] = {
    "bad_request": "it cannot read this request",
    "context_length": "the conversation is too long for the model",
    "content_filter": "stopped by a content filter",
    "auth": "the key is not accepted",
    "not_found": "no such model or path",
    "quota": "no credit left",
    "rate_limit": "too many requests",
    "timeout": "it took too long",
    "overloaded": "overloaded",
    "server": "a fault of the server",
    "connection": "the connection failed",
    "truncated": "cut off",
    "empty": "nothing that can be used was said",
    "max_steps": "too many steps",
    "protocol": "not the expected format",
}
"""What a person reads of a kind."""
