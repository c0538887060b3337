"""``ChatAgent``: any server with OpenAI's Chat Completions API.

    async with ChatAgent(base_url="http://localhost:11434/v1", model="qwen3") as agent: ...

Ollama, vLLM, llama.cpp, LM Studio, Groq, OpenRouter, Azure, DeepSeek, Gemini's compatible endpoint.

Source: none in Micdrop, whose agents are one per vendor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, get_args

from micdrop_agent.options import check_flag
from micdrop_agent.providers.attachments import Echo
from micdrop_agent.providers.http_agent import HttpAgent
from micdrop_agent.providers.keys import find_key, has_credentials
from micdrop_agent.providers.requests.body import BodyBuilder
from micdrop_agent.providers.requests.dialects import ChatDialect, TemplateDialect
from micdrop_agent.providers.responses.chat_stream import ChatTranslator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from micdrop_agent.providers.http_agent import HttpOptions
    from micdrop_agent.transport import ConnectFn

__all__ = ["ChatAgent", "ChatDialectName"]

ChatDialectName = Literal["openai", "template"]

_WITH_USAGE: Final = {"stream_options": {"include_usage": True}}

_DIALECTS: Final = {"openai": ChatDialect, "template": TemplateDialect}


class ChatAgent(HttpAgent):
    """Answers with the model of any server that has Chat Completions.

    Args:
        model: Name of the model.
        base_url: The server, such as ``http://localhost:11434/v1``; OpenAI itself if left out.
        api_key: The key, if the server wants one. The environment (``OPENAI_API_KEY``) is asked only
            when ``base_url`` is left out: OpenAI's key is nobody else's business.
        client: An ``openai.AsyncOpenAI``, ``openai.AsyncAzureOpenAI``, ``httpx2.AsyncClient`` or
            ``httpx.AsyncClient`` of your own; may be shared, and is never closed.
        settings: Members merged last into each request, such as ``temperature`` or ``max_tokens``.
            ``stream``, ``input`` and ``messages`` are refused.
        dialect: ``"openai"`` sends the conversation as it is; ``"template"`` brings it into the form
            that chat templates of open models accept (vLLM, llama.cpp): one system message in front,
            user and assistant in turns.
        think: Keep what the model writes between ``<think>`` and ``</think>`` from being spoken.
        include_usage: Ask the server to count tokens (``stream_options``); switch it off for an old
            server that refuses it.
        connect: Opens connections in place of TCP; for tests.
        options: ``retry``, ``timeouts``, ``max_steps``, ``max_context_tokens``, ``count_tokens`` and the
            options of ``Agent``.

    Raises:
        ProviderError: OpenAI itself is asked, and there is no key (kind ``auth``).
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range, or ``settings`` holds what the agent makes itself.
    """

    provider_name: ClassVar[str] = "chat"
    path: ClassVar[str] = "/chat/completions"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    default_url: ClassVar[str] = "https://api.openai.com/v1"

    def __init__(
        self,
        *,
        model: str = "gpt-4o",
        base_url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        settings: Mapping[str, Any] | None = None,
        dialect: ChatDialectName = "openai",
        think: bool = True,
        include_usage: bool = True,
        connect: ConnectFn | None = None,
        **options: Unpack[HttpOptions],
    ) -> None:
        if dialect not in get_args(ChatDialectName):
            raise ValueError(f'dialect must be "openai" or "template", not {dialect!r}')
        check_flag("think", think)
        check_flag("include_usage", include_usage)
        self.dialect = dialect
        self.think = think
        self.include_usage = include_usage
        self._echo = Echo()
        super().__init__(
            model=model,
            api_key=api_key,
            client=client,
            base_url=base_url,
            settings=settings,
            connect=connect,
            **options,
        )

    def _find_key(self, api_key: str | None) -> str | None:
        if api_key is None and (self._base_url is not None or has_credentials(self._client)):
            return None
        return find_key(api_key, self.key_variable, provider=self.provider_name, required=self._base_url is None)

    def _make_builder(self) -> BodyBuilder:
        return BodyBuilder(
            model=self.model,
            dialect=_DIALECTS[self.dialect](self._echo),
            history="messages",
            tools="chat",
            settings=self.settings,
            defaults=_WITH_USAGE if self.include_usage else {},
        )

    def _make_translator(self) -> ChatTranslator:
        think = None
        if self.think:
            from micdrop_agent.text import ThinkFilter

            think = ThinkFilter()
        return ChatTranslator(self.provider_name, self._key, think=think, echo=self._echo)
