"""``ChatAgent``: any server with OpenAI's Chat Completions API.

    async with ChatAgent(base_url="http://localhost:11434/v1", model="qwen3") as agent: ...

Ollama, vLLM, llama.cpp, LM Studio, Groq, OpenRouter, Azure, DeepSeek, Gemini's compatible endpoint.

Source: none in Micdrop, whose agents are one per vendor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import attrs

from micdrop_agent.providers.http_agent import HttpAgent
from micdrop_agent.providers.kinds import KINDS
from micdrop_agent.providers.options import ChatOptions
from micdrop_agent.providers.quirks import TEMPLATE_FORM, quirks_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from micdrop_agent.providers.attachments import Attachments
    from micdrop_agent.providers.kinds import ProviderKind
    from micdrop_agent.providers.options import ChatDialectName, ChatKeywords, HttpKeywords
    from micdrop_agent.providers.quirks import ChatQuirks, SchemaForm
    from micdrop_agent.providers.requests.body import BodyBuilder
    from micdrop_agent.providers.requests.tool_forms import ToolForm
    from micdrop_agent.providers.responses.chat_stream import ChatTranslator

__all__ = ["ChatAgent", "chat_builder"]

_WITH_USAGE: Final = {"stream_options": {"include_usage": True}}
_OPENAI: Final = KINDS["openai"]
_FORMS: Final[Mapping[SchemaForm, ToolForm]] = {"strict": "chat", "loose": "loose", "nullable": "nullable"}


class ChatAgent(HttpAgent):
    """Answers with the model of any server that has Chat Completions.

    What a known server wants or sends that others do not is chosen by ``base_url`` and ``model``; see
    the guide "Quirks of servers".

    Args:
        options: ``dialect``, ``think``, ``include_usage`` and ``quirks`` (``ChatOptions``), ``model``, ``base_url`` (OpenAI itself by default), ``api_key`` (the environment is asked
            only for a provider that the library knows by its URL: OpenAI's key goes to OpenAI only),
            ``settings`` and the other options of ``HttpAgent``, ``ModelAgent`` and ``Agent``.

    Raises:
        ProviderError: OpenAI itself is asked, and there is no key (kind ``auth``).
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range, or ``settings`` holds what the agent makes itself.
    """

    kind: ClassVar[ProviderKind] = KINDS["chat"]
    options = ChatOptions

    _needs = ("micdrop_agent.providers.requests.chat_dialect", "micdrop_agent.providers.responses.chat_stream")

    def __init__(self, **options: Unpack[ChatKeywords]) -> None:
        super().__init__(**cast("HttpKeywords", options))
        given = cast("ChatOptions", self.given)
        self.dialect: ChatDialectName = given.dialect
        self.think = bool(given.think)
        self.include_usage: bool = given.include_usage
        found = quirks_of(self.base_url, self.model) if given.quirks is None else given.quirks
        if given.think == "inside":
            found = attrs.evolve(found, starts_thinking=True)
        self.quirks: ChatQuirks = attrs.evolve(found, **TEMPLATE_FORM) if given.dialect == "template" else found

    @property
    def base_url(self) -> str:
        """URL of the server that is asked; not used with an SDK's ``client``."""
        return (_OPENAI.base_url or "") if self._base_url is None else self._base_url

    @property
    def provider_name(self) -> str:
        """Name of the provider in errors, logs and traces: that of the table of kinds, if the server is in it."""
        known = self._known_kind()
        return self.kind.name if known is None or known.agent != type(self).__name__ else known.name

    def _known_kind(self) -> ProviderKind | None:
        return next((kind for kind in KINDS.values() if kind.base_url == self.base_url.rstrip("/")), None)

    def _key_kind(self) -> ProviderKind | None:
        return self._known_kind()

    def _make_builder(self) -> BodyBuilder:
        quirks = self.quirks if self.include_usage else attrs.evolve(self.quirks, stream_usage=False)
        return chat_builder(quirks, self.model, self._attachments, self.settings)

    def _make_translator(self) -> ChatTranslator:
        from micdrop_agent.providers.responses.chat_stream import ChatTranslator
        from micdrop_agent.text.think import ThinkFilter

        if self.think and self.quirks.starts_thinking:
            from micdrop_agent.providers.responses.thoughts import GuessedThoughts

            think: ThinkFilter = GuessedThoughts(pass_calls=True)
        else:
            think = ThinkFilter(thoughts=self.think, pass_calls=True)
        return ChatTranslator(
            self.provider_name, self._secret, think=think, quirks=self.quirks, attachments=self._attachments
        )


def chat_builder(
    quirks: ChatQuirks,
    model: str,
    attachments: Attachments | None = None,
    settings: Mapping[str, Any] | None = None,
) -> BodyBuilder:
    """What makes the bodies of requests to a server with these ``quirks``."""
    from micdrop_agent.providers.requests.body import BodyBuilder
    from micdrop_agent.providers.requests.chat_dialect import ChatDialect

    names = quirks.setting_names
    return BodyBuilder(
        model=model,
        dialect=ChatDialect(quirks, attachments),
        history="messages",
        tools=_FORMS[quirks.schemas],
        settings={names.get(name, name): value for name, value in (settings or {}).items()},
        defaults=_WITH_USAGE if quirks.stream_usage else {},
        mixed_strict=quirks.mixed_strict,
        no_choice={"tool_choice": "none"} if quirks.tool_choice_none else {},
    )
