"""Tables: the error codes of each provider, with the page of its reference that lists them.

    CODES ──▶ failure_codes.KIND_OF_CODE ──▶ failures

A code stands in the row of every provider that documents it; the same code never means two kinds. Statuses
alone (OpenRouter's numeric codes, for one) are in ``failure_codes.KIND_OF_STATUS``. Codes in lower case.
Tests: tests/test_provider_codes.py; shown in docs/guides/quirks.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.errors import FailureKind

__all__ = ["CODES", "CodeRow"]


@attrs.frozen
class CodeRow:
    """The error codes of one provider.

    Args:
        provider: Its name.
        source: The page that lists them.
        codes: Kind to codes.
    """

    provider: str
    source: str
    codes: Mapping[FailureKind, tuple[str, ...]]


CODES: Final = (
    CodeRow(
        "OpenAI",
        "https://platform.openai.com/docs/guides/error-codes, /docs/api-reference/responses-streaming/error",
        {
            "quota": ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active"),
            "auth": ("invalid_api_key", "incorrect_api_key", "invalid_organization", "account_deactivated"),
            "not_found": ("model_not_found",),
            "rate_limit": ("rate_limit_exceeded",),
            "overloaded": ("server_is_overloaded", "slow_down", "service_unavailable_error", "engine_overloaded"),
            "context_length": ("context_length_exceeded",),
            "content_filter": (
                "content_filter",
                "content_policy_violation",
                "image_content_policy_violation",
                "bio_policy",
                "cyber_policy",
                "misalignment_policy_violation",
            ),
            "server": ("server_error", "internal_error"),
            "timeout": ("vector_store_timeout",),
            "bad_request": (
                "invalid_request_error",
                "invalid_prompt",
                "data_residency_mismatch",
                "invalid_image",
                "invalid_image_format",
                "invalid_base64_image",
                "invalid_image_url",
                "image_too_large",
                "image_too_small",
                "image_parse_error",
                "invalid_image_mode",
                "image_file_too_large",
                "unsupported_image_media_type",
                "empty_image_file",
                "failed_to_download_image",
                "image_file_not_found",
                "unsupported_parameter",
                "unsupported_value",
                "string_above_max_length",
            ),
        },
    ),
    CodeRow(
        "Azure OpenAI",
        "https://learn.microsoft.com/azure/ai-foundry/openai/reference, /concepts/content-filter",
        {
            "not_found": ("deploymentnotfound", "resourcenotfound", "modelnotfound"),
            "auth": ("unauthorized", "permissiondenied", "accessdenied", "invalidauthenticationtoken", "401", "403"),
            "rate_limit": ("toomanyrequests", "ratelimitreached"),
            "quota": ("insufficientquota", "quotaexceeded"),
            "overloaded": ("nocapacity", "serviceunavailable", "serverbusy"),
            "content_filter": ("responsibleaipolicyviolation", "contentfilter"),
            "context_length": ("contextlengthexceeded",),
            "server": ("internalservererror", "internalfailure"),
            "timeout": ("requesttimeout", "operationtimedout"),
            "bad_request": ("badrequest", "invalidrequest", "invalidpayload", "operationnotsupported"),
        },
    ),
    CodeRow(
        "Mistral",
        "https://docs.mistral.ai/api, and mistralai/client-python",
        {
            "rate_limit": ("service_tier_capacity_exceeded", "rate_limited", "1300", "3505"),
            "not_found": ("invalid_model", "1500"),
            "context_length": ("prompt_too_long", "3051"),
            "bad_request": ("invalid_request_message_order", "invalid_request_prompt", "3230", "3240"),
            "server": ("internal_server_error", "unreachable_backend", "1100"),
        },
    ),
    CodeRow(
        "Groq",
        "https://console.groq.com/docs/errors, /docs/tool-use, /docs/structured-outputs",
        {
            "empty": ("tool_use_failed", "output_parse_failed", "json_validate_failed"),
            "overloaded": ("capacity_exceeded", "over_capacity"),
            "not_found": ("model_decommissioned", "model_not_found", "unknown_url"),
            "auth": ("invalid_api_key", "model_terms_required", "organization_restricted"),
            "context_length": ("context_length_exceeded",),
            "rate_limit": ("rate_limit_exceeded",),
            "quota": ("blocked_api_access", "spend_limit_reached"),
            "bad_request": ("invalid_request_error", "request_too_large"),
        },
    ),
    CodeRow(
        "OpenRouter",
        "https://openrouter.ai/docs/api/reference/errors-and-debugging",
        {
            "overloaded": ("provider_overloaded",),
            "server": ("provider_unavailable", "server", "unmapped"),
            "context_length": ("context_length_exceeded",),
            "quota": ("payment_required", "token_limit_exceeded"),
            "auth": ("authentication", "permission_denied"),
            "content_filter": ("content_policy_violation", "refusal"),
            "not_found": ("not_found",),
            "rate_limit": ("rate_limit_exceeded",),
            "timeout": ("timeout",),
            "bad_request": (
                "invalid_request",
                "invalid_prompt",
                "string_too_long",
                "payload_too_large",
                "unprocessable",
                "precondition_failed",
                "invalid_image",
                "image_too_large",
                "image_too_small",
                "unsupported_image_format",
                "image_not_found",
                "image_download_failed",
            ),
        },
    ),
    CodeRow(
        "Anthropic",
        "https://docs.claude.com/en/api/errors",
        {
            "bad_request": ("invalid_request_error", "request_too_large"),
            "auth": ("authentication_error", "permission_error"),
            "quota": (
                "billing_error",
                "contract_spend_limit_reached",
                "enforced_spend_limit_reached",
                "linked_organization_spend_limit_reached",
            ),
            "not_found": ("not_found_error",),
            "rate_limit": ("rate_limit_error", "ramp_limit_exceeded"),
            "server": ("api_error", "conflict_error"),
            "overloaded": ("overloaded_error",),
            "timeout": ("timeout_error",),
        },
    ),
    CodeRow(
        "Bedrock",
        "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html",
        {
            "rate_limit": ("throttlingexception",),
            "quota": ("servicequotaexceededexception",),
            "overloaded": ("serviceunavailableexception", "modelnotreadyexception"),
            "server": ("internalserverexception", "modelstreamerrorexception", "modelerrorexception"),
            "timeout": ("modeltimeoutexception",),
            "auth": ("accessdeniedexception", "unrecognizedclientexception", "expiredtokenexception"),
            "not_found": ("resourcenotfoundexception",),
            "bad_request": ("validationexception",),
        },
    ),
    CodeRow(
        "Gemini",
        "https://ai.google.dev/gemini-api/docs/troubleshooting, https://cloud.google.com/apis/design/errors",
        {
            "bad_request": (
                "invalid_argument",
                "failed_precondition",
                "out_of_range",
                "unimplemented",
                "already_exists",
            ),
            "auth": (
                "unauthenticated",
                "permission_denied",
                "api_key_invalid",
                "api_key_service_blocked",
                "api_key_http_referrer_blocked",
                "api_key_ip_address_blocked",
                "service_disabled",
                "consumer_invalid",
                "consumer_suspended",
                "access_token_expired",
            ),
            "quota": ("billing_disabled",),
            "not_found": ("not_found",),
            "rate_limit": ("resource_exhausted", "rate_limit_exceeded"),
            "server": ("internal", "unknown", "data_loss", "aborted", "cancelled"),
            "overloaded": ("unavailable",),
            "timeout": ("deadline_exceeded",),
        },
    ),
)
"""By provider."""
