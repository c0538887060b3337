"""``GeminiAgent``: Gemini, through its own API (``streamGenerateContent``).

    async with GeminiAgent(system_prompt="You are a helpful voice assistant.") as agent: ...

Source: none in Micdrop. API: https://ai.google.dev/api/generate-content.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from micdrop_agent.providers.http_agent import HttpAgent
from micdrop_agent.providers.kinds import KINDS
from micdrop_agent.providers.requests.gemini_dialect import GeminiBuilder, GeminiDialect
from micdrop_agent.providers.responses.gemini_stream import GeminiTranslator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.providers.kinds import ProviderKind

__all__ = ["GeminiAgent"]

_WITHOUT_SIGNATURES: Final = re.compile(r"gemini-[12]\b")
"""Models that do not insist on signatures."""


class GeminiAgent(HttpAgent):
    """Answers with Gemini.

    Thoughts are never spoken; the signatures of calls go back with them.

    Args:
        options: ``model`` (``gemini-flash-latest``), ``api_key`` (from ``GEMINI_API_KEY``), ``base_url`` of
            another server with this API, ``settings`` (members of the request, such as
            ``generationConfig`` or ``safetySettings``) and the other options of ``HttpAgent``,
            ``ModelAgent`` and ``Agent``.

    Raises:
        ProviderError: No key was given and the environment has none (kind ``auth``).
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range, or ``settings`` holds what the agent makes itself.
    """

    kind: ClassVar[ProviderKind] = KINDS["gemini"]

    def _headers(self) -> Mapping[str, str]:
        return {} if self._key is None else {"x-goog-api-key": self._key}

    def _path(self) -> str:
        return self.kind.path.format(model=self.model.removeprefix("models/"))

    def _make_builder(self) -> GeminiBuilder:
        sign_foreign = _WITHOUT_SIGNATURES.search(self.model) is None
        return GeminiBuilder(GeminiDialect(self._attachments, sign_foreign=sign_foreign), self.settings)

    def _make_translator(self) -> GeminiTranslator:
        return GeminiTranslator(self.kind.name, self._secret, attachments=self._attachments)
