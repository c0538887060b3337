"""``AnthropicAgent``: Claude, through Anthropic's Messages API, and servers that have it too.

    async with AnthropicAgent(system_prompt="You are a helpful voice assistant.") as agent: ...

Source: none in Micdrop. API: https://docs.claude.com/en/api/messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import attrs

from micdrop_agent.providers.http_agent import HttpAgent
from micdrop_agent.providers.kinds import KINDS
from micdrop_agent.providers.options import HttpKeywords, HttpOptions, flag
from micdrop_agent.providers.requests.claude_dialect import ClaudeBuilder, ClaudeDialect
from micdrop_agent.providers.responses.claude_stream import ClaudeTranslator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from micdrop_agent.providers.kinds import ProviderKind

__all__ = ["AnthropicAgent", "AnthropicKeywords", "AnthropicOptions"]


@attrs.frozen(kw_only=True, eq=False)
class AnthropicOptions(HttpOptions):
    """What an ``AnthropicAgent`` can be told."""

    cache: bool = attrs.field(default=True, validator=flag)
    """Ask the server to keep the beginning of the conversation for the next request, which then costs less and is
    answered sooner."""


class AnthropicKeywords(HttpKeywords, total=False):
    """The keywords of an ``AnthropicAgent``; see ``AnthropicOptions``."""

    cache: bool


_VERSION: Final = "2023-06-01"
"""Of the API; the newest one there is."""

_MAX_TOKENS: Final = 1024
"""The API wants a limit: some minutes of speech."""

_CACHE: Final = {"cache_control": {"type": "ephemeral"}}


class AnthropicAgent(HttpAgent):
    """Answers with Claude.

    Thoughts are never spoken; with their signatures they go back next to the calls that they led to.

    Args:
        options: ``cache`` (``AnthropicOptions``), ``model`` (``claude-haiku-5-5``), ``api_key`` (from ``ANTHROPIC_API_KEY``), ``base_url`` of
            another server with this API, ``settings`` (``max_tokens``, 1024 by default, ``thinking``, …)
            and the other options of ``HttpAgent``, ``ModelAgent`` and ``Agent``.

    Raises:
        ProviderError: No key was given and the environment has none (kind ``auth``).
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range, or ``settings`` holds what the agent makes itself.
    """

    kind: ClassVar[ProviderKind] = KINDS["anthropic"]
    options = AnthropicOptions

    def __init__(self, **options: Unpack[AnthropicKeywords]) -> None:
        super().__init__(**cast("HttpKeywords", options))
        self.cache: bool = cast("AnthropicOptions", self.given).cache

    def _headers(self) -> Mapping[str, str]:
        key = {} if self._key is None else {"x-api-key": self._key}
        return {"anthropic-version": _VERSION, **key}

    def _make_builder(self) -> ClaudeBuilder:
        defaults: dict[str, Any] = {"max_tokens": _MAX_TOKENS}
        return ClaudeBuilder(
            model=self.model,
            dialect=ClaudeDialect(self._attachments),
            history="messages",
            tools="messages",
            settings=self.settings,
            defaults={**defaults, **_CACHE} if self.cache else defaults,
            no_choice={"tool_choice": {"type": "none"}},
        )

    def _make_translator(self) -> ClaudeTranslator:
        return ClaudeTranslator(self.kind.name, self._secret, attachments=self._attachments)
