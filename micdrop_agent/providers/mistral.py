"""``MistralAgent``: Mistral's chat API.

    async with MistralAgent(system_prompt="You are a helpful voice assistant.") as agent: ...

Source: Micdrop package ``@micdrop/mistral``, ``MistralAgent.ts``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from micdrop_agent.providers.http_agent import HttpAgent
from micdrop_agent.providers.requests.body import BodyBuilder
from micdrop_agent.providers.requests.dialects import MistralDialect
from micdrop_agent.providers.responses.chat_stream import ChatTranslator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from micdrop_agent.providers.http_agent import HttpOptions
    from micdrop_agent.transport import ConnectFn

__all__ = ["MistralAgent"]

_API_NAMES: Final = {
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
}
"""Names of Mistral's TypeScript SDK, which Micdrop's settings have, to those of the API, which knows
no others: settings can be carried over from a Micdrop configuration."""


class MistralAgent(HttpAgent):
    """Answers with a model of Mistral.

    Args:
        model: Name of the model.
        api_key: The key; from ``MISTRAL_API_KEY`` if left out.
        client: An ``httpx2.AsyncClient``, ``httpx.AsyncClient`` or ``openai.AsyncOpenAI`` of your
            own; may be shared, and is never closed.
        base_url: Another server with this API.
        settings: Members merged last into each request, such as ``temperature`` or ``max_tokens``
            (``maxTokens`` is understood too). ``stream``, ``input`` and ``messages`` are refused.
        connect: Opens connections in place of TCP; for tests.
        options: ``retry``, ``timeouts``, ``max_steps``, ``max_context_tokens``, ``count_tokens`` and the
            options of ``Agent``.

    Raises:
        ProviderError: No key was given and the environment has none (kind ``auth``).
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range, or ``settings`` holds what the agent makes itself.
    """

    provider_name: ClassVar[str] = "mistral"
    path: ClassVar[str] = "/chat/completions"
    key_variable: ClassVar[str] = "MISTRAL_API_KEY"
    default_url: ClassVar[str] = "https://api.mistral.ai/v1"

    def __init__(
        self,
        *,
        model: str = "mistral-large-latest",
        api_key: str | None = None,
        client: Any = None,
        base_url: str | None = None,
        settings: Mapping[str, Any] | None = None,
        connect: ConnectFn | None = None,
        **options: Unpack[HttpOptions],
    ) -> None:
        super().__init__(
            model=model,
            api_key=api_key,
            client=client,
            base_url=base_url,
            settings=settings,
            connect=connect,
            **options,
        )

    def _make_builder(self) -> BodyBuilder:
        settings = {_API_NAMES.get(name, name): value for name, value in self.settings.items()}
        return BodyBuilder(
            model=self.model, dialect=MistralDialect(), history="messages", tools="mistral", settings=settings
        )

    def _make_translator(self) -> ChatTranslator:
        return ChatTranslator(self.provider_name, self._key)
