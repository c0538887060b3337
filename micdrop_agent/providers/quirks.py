"""How servers with Chat Completions differ from each other, as values.

    base URL, model ──▶ quirks_of() ──▶ ChatQuirks ──▶ dialect, body, translator of a ``ChatAgent``

There is one implementation of Chat Completions. What it does for one server and not for another is a
field of ``ChatQuirks``, and what is known of a server is one row of ``SERVERS``. A row says where its
facts come from; docs/guides/quirks.md is made from here. To switch one off, pass the row without it:
``ChatAgent(quirks=attrs.evolve(quirks_of(url, model), unsigned_call=None))``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.model.protocol import FinishReason

__all__ = ["GEMINI", "MISTRAL", "OPENAI", "SERVERS", "TEMPLATE_FORM", "ChatQuirks", "quirks_of"]

CallIds = Literal["as made", "at most 40", "nine"]
SchemaForm = Literal["strict", "loose", "nullable"]


@attrs.frozen(kw_only=True)
class ChatQuirks:
    """What one Chat Completions server wants, or sends, that others do not.

    Args:
        server: Its name, for the guide.
        source: Where its behaviour is documented or was reported.
        hosts: Host names by which its base URL is recognised; subdomains match too.
        models: Pattern of model names by which it is recognised behind a gateway.
    """

    server: str = "any other server"
    source: str = ""
    hosts: tuple[str, ...] = ()
    models: str = ""

    call_ids: CallIds = "as made"
    """Form of the ids of tool calls. Ids go back as they were made, unless the server refuses long ones (``at
    most 40``) or all but nine letters and digits (``nine``); then others are replaced by a hash."""

    system_first: bool = False
    """All system messages are joined into one, in front of the conversation."""

    alternate: bool = False
    """Messages of user and assistant alternate, the user's first: neighbours are joined, and what is missing is
    filled in. Source: chat templates of Llama, Mistral and Gemma models raise otherwise (vllm#6862)."""

    words_with_calls: bool = True
    """Words before a tool call go into the message that holds the call."""

    user_after_tool: bool = True
    """A message of the user may follow a tool result; else ``Okay.`` is put between."""

    ends_with_assistant: bool = True
    """The last message may be the assistant's; else the user asks to go on."""

    prefix: bool = False
    """An answer is continued from a last message with ``prefix: true``, not by a note."""

    schemas: SchemaForm = "strict"
    """Form of tool schemas: ``strict`` mode where every tool of the request has that form, ``loose`` (as
    written), or ``nullable`` (as written, with ``nullable: true`` in place of lists of types)."""

    mixed_strict: bool = False
    """Some tools of a request may be strict and others not; else one that cannot be strict makes none strict. Source:
    Cerebras answers 422 to a mixture (RooCodeInc/Roo-Code#10334)."""

    tool_choice_none: bool = True
    """``tool_choice: none`` is understood; else it is left out, and calls are ignored where none may be made."""

    stream_usage: bool = True
    """Token counts are asked for with ``stream_options``."""

    images: bool = True
    """Pictures can be sent; else the request fails at once, as ``bad_request``."""

    setting_names: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Other spellings of settings, and the names that the server knows."""

    call_members: tuple[str, ...] = ("extra_content",)
    """Members of a tool call that go back to the server with that call."""

    thoughts: tuple[str, ...] = ("reasoning_content", "reasoning_details", "reasoning")
    """Members that hold thoughts. They are never spoken, and go back to the server next to the calls they led
    to."""

    unsigned_call: Mapping[str, Any] | None = None
    """Members for the first call of a step of the current turn if it has no signature, as one by another model."""

    finish_reasons: Mapping[str, FinishReason] = attrs.field(factory=dict[str, "FinishReason"])
    """Finish reasons that only this server sends."""

    starts_thinking: bool = False
    """The model's text begins inside its thoughts: nothing is spoken before the first closing tag, or, if
    none comes, before the end of the answer."""


TEMPLATE_FORM: Final[Mapping[str, Any]] = {
    "system_first": True,
    "alternate": True,
    "user_after_tool": False,
    "ends_with_assistant": False,
}
"""What the chat templates of open models want (``ChatAgent(dialect="template")``)."""

OPENAI: Final = ChatQuirks(
    server="OpenAI, Azure",
    source="https://platform.openai.com/docs/api-reference/chat (ids of more than 40 characters are refused with 400)",
    hosts=("api.openai.com", "openai.azure.com", "cognitiveservices.azure.com"),
    call_ids="at most 40",
    mixed_strict=True,
)

MISTRAL: Final = ChatQuirks(
    server="Mistral",
    source="https://docs.mistral.ai/api, mistral-common#169, opencode#1680",
    hosts=("api.mistral.ai",),
    call_ids="nine",
    words_with_calls=False,
    user_after_tool=False,
    ends_with_assistant=False,
    prefix=True,
    schemas="loose",
    stream_usage=False,
    setting_names={
        "maxTokens": "max_tokens",
        "topP": "top_p",
        "randomSeed": "random_seed",
        "presencePenalty": "presence_penalty",
        "frequencyPenalty": "frequency_penalty",
        "responseFormat": "response_format",
        "toolChoice": "tool_choice",
        "parallelToolCalls": "parallel_tool_calls",
        "promptMode": "prompt_mode",
        "safePrompt": "safe_prompt",
    },
    call_members=(),
    thoughts=(),
)

GEMINI: Final = ChatQuirks(
    server="Gemini's compatible endpoint",
    source="https://ai.google.dev/gemini-api/docs/thought-signatures, https://ai.google.dev/gemini-api/docs/openai",
    hosts=("generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
    models=r"(?:^|/)gemini-",
    schemas="nullable",
    unsigned_call={"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}},
)

THINKING_TEMPLATES: Final = ChatQuirks(
    server="Models whose chat template opens the thoughts (QwQ, Qwen3 Thinking 2507)",
    source="https://huggingface.co/Qwen/Qwen3-235B-A22B-Thinking-2507 (only the closing tag is in the output)",
    models=r"qwq|qwen3-.*thinking",
    starts_thinking=True,
)

SERVERS: Final[tuple[ChatQuirks, ...]] = (OPENAI, MISTRAL, GEMINI, THINKING_TEMPLATES)
"""The servers that are recognised; the first row that fits counts."""

_ANY: Final = ChatQuirks()


def quirks_of(base_url: str, model: str) -> ChatQuirks:
    """The quirks of the server behind ``base_url``, or of the one that ``model`` names behind a gateway."""
    host = urlsplit(base_url).hostname or ""
    for row in SERVERS:
        # Vertex has a host for each region: europe-west1-aiplatform.googleapis.com.
        if any(host == known or host.endswith((f".{known}", f"-{known}")) for known in row.hosts):
            return row
    return next((row for row in SERVERS if row.models and re.search(row.models, model, re.IGNORECASE)), _ANY)
