"""``MistralAgent``: Mistral's chat API.

    async with MistralAgent(system_prompt="You are a helpful voice assistant.") as agent: ...

Source: Micdrop package ``@micdrop/mistral``, ``MistralAgent.ts``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from micdrop_agent.providers.chat import chat_builder
from micdrop_agent.providers.http_agent import HttpAgent
from micdrop_agent.providers.kinds import KINDS
from micdrop_agent.providers.quirks import MISTRAL
from micdrop_agent.providers.responses.chat_stream import ChatTranslator

if TYPE_CHECKING:
    from micdrop_agent.providers.kinds import ProviderKind
    from micdrop_agent.providers.requests.body import BodyBuilder

__all__ = ["MistralAgent"]


class MistralAgent(HttpAgent):
    """Answers with a model of Mistral.

    Args:
        options: ``model`` (``mistral-large-latest``), ``api_key`` (from ``MISTRAL_API_KEY``), ``base_url`` of
            another server with this API, ``settings`` (``temperature``, ``max_tokens``, …; ``maxTokens`` is
            understood too) and the other options of ``HttpAgent``, ``ModelAgent`` and ``Agent``.

    Raises:
        ProviderError: No key was given and the environment has none (kind ``auth``).
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range, or ``settings`` holds what the agent makes itself.
    """

    kind: ClassVar[ProviderKind] = KINDS["mistral"]

    _needs = ("micdrop_agent.providers.requests.chat_dialect",)

    def _make_builder(self) -> BodyBuilder:
        return chat_builder(MISTRAL, self.model, self._attachments, self.settings)

    def _make_translator(self) -> ChatTranslator:
        from micdrop_agent.text import ThinkFilter

        return ChatTranslator(self.kind.name, self._secret, think=ThinkFilter(pass_calls=True), quirks=MISTRAL)
