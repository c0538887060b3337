"""``OpenaiAgent``: OpenAI's Responses API, and servers that have it too.

    async with OpenaiAgent(model="gpt-4o", system_prompt="You are a helpful voice assistant.") as agent: ...

Source: Micdrop package ``@micdrop/openai``, ``OpenaiAgent.ts``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, cast, get_args

import attrs

from micdrop_agent.options import check_choice, validated
from micdrop_agent.providers.http_agent import HttpAgent
from micdrop_agent.providers.kinds import KINDS
from micdrop_agent.providers.options import HttpKeywords, HttpOptions
from micdrop_agent.providers.requests.body import BodyBuilder
from micdrop_agent.providers.requests.responses_dialect import ResponsesDialect
from micdrop_agent.providers.responses.responses_stream import ResponsesTranslator

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from micdrop_agent.providers.kinds import ProviderKind

__all__ = ["OpenaiAgent", "OpenaiKeywords", "OpenaiOptions", "ResponsesDialectName"]

ResponsesDialectName: TypeAlias = Literal["openai", "typed"]


@attrs.frozen(kw_only=True, eq=False)
class OpenaiOptions(HttpOptions):
    """What an ``OpenaiAgent`` can be told."""

    dialect: ResponsesDialectName = attrs.field(
        default="openai", validator=validated(check_choice, known=get_args(ResponsesDialectName))
    )
    """``"openai"`` sends messages in their short form; ``"typed"`` says of each that it is a message, which llama.cpp's
    server insists on for what the model itself said."""


class OpenaiKeywords(HttpKeywords, total=False):
    """The keywords of an ``OpenaiAgent``; see ``OpenaiOptions``."""

    dialect: ResponsesDialectName


class OpenaiAgent(HttpAgent):
    """Answers with a model of OpenAI, through the Responses API.

    Args:
        options: ``dialect`` (``OpenaiOptions``), ``model`` (``gpt-4o``), ``api_key`` (from ``OPENAI_API_KEY``), ``base_url`` of another
            server with this API, ``settings`` (``temperature``, ``max_output_tokens``, ``reasoning``, …)
            and the other options of ``HttpAgent``, ``ModelAgent`` and ``Agent``.

    Raises:
        ProviderError: No key was given and the environment has none (kind ``auth``).
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range, or ``settings`` holds what the agent makes itself.
    """

    kind: ClassVar[ProviderKind] = KINDS["openai"]
    options = OpenaiOptions

    def __init__(self, **options: Unpack[OpenaiKeywords]) -> None:
        super().__init__(**cast("HttpKeywords", options))
        self.dialect: ResponsesDialectName = cast("OpenaiOptions", self.given).dialect

    def _make_builder(self) -> BodyBuilder:
        return BodyBuilder(
            model=self.model,
            dialect=ResponsesDialect(typed=self.dialect == "typed", attachments=self._attachments),
            history="input",
            tools="responses",
            settings=self.settings,
        )

    def _make_translator(self) -> ResponsesTranslator:
        return ResponsesTranslator(self.kind.name, self._secret, attachments=self._attachments)
