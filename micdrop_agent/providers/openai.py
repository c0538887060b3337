"""``OpenaiAgent``: OpenAI's Responses API, and servers that have it too.

    async with OpenaiAgent(model="gpt-4o", system_prompt="You are a helpful voice assistant.") as agent: ...

Source: Micdrop package ``@micdrop/openai``, ``OpenaiAgent.ts``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, get_args

from micdrop_agent.providers.http_agent import HttpAgent
from micdrop_agent.providers.requests.body import BodyBuilder
from micdrop_agent.providers.requests.dialects import ResponsesDialect, TypedDialect
from micdrop_agent.providers.responses.responses_stream import ResponsesTranslator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from micdrop_agent.providers.http_agent import HttpOptions
    from micdrop_agent.transport import ConnectFn

__all__ = ["OpenaiAgent", "ResponsesDialectName"]

ResponsesDialectName: TypeAlias = Literal["openai", "typed"]

_DIALECTS: Final = {"openai": ResponsesDialect, "typed": TypedDialect}


class OpenaiAgent(HttpAgent):
    """Answers with a model of OpenAI, through the Responses API.

    Args:
        model: Name of the model.
        api_key: The key; from ``OPENAI_API_KEY`` if left out.
        client: An ``openai.AsyncOpenAI``, ``openai.AsyncAzureOpenAI``, ``httpx2.AsyncClient`` or
            ``httpx.AsyncClient`` of your own; may be shared, and is never closed.
        base_url: Another server with this API, such as ``http://localhost:8080/v1``.
        settings: Members merged last into each request, such as ``temperature``,
            ``max_output_tokens`` or ``reasoning``. ``stream``, ``input`` and ``messages`` are refused.
        dialect: ``"openai"`` sends messages in their short form; ``"typed"`` says of each that it is a
            message, which llama.cpp's server insists on for what the model itself said.
        connect: Opens connections in place of TCP; for tests.
        options: ``retry``, ``timeouts``, ``max_steps``, ``max_context_tokens``, ``count_tokens`` and the
            options of ``Agent``.

    Raises:
        ProviderError: No key was given and the environment has none (kind ``auth``).
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range, or ``settings`` holds what the agent makes itself.
    """

    provider_name: ClassVar[str] = "openai"
    path: ClassVar[str] = "/responses"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    default_url: ClassVar[str] = "https://api.openai.com/v1"

    def __init__(
        self,
        *,
        model: str = "gpt-4o",
        api_key: str | None = None,
        client: Any = None,
        base_url: str | None = None,
        settings: Mapping[str, Any] | None = None,
        dialect: ResponsesDialectName = "openai",
        connect: ConnectFn | None = None,
        **options: Unpack[HttpOptions],
    ) -> None:
        if dialect not in get_args(ResponsesDialectName):
            raise ValueError(f'dialect must be "openai" or "typed", not {dialect!r}')
        self.dialect = dialect
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
        return BodyBuilder(
            model=self.model,
            dialect=_DIALECTS[self.dialect](),
            history="input",
            tools="responses",
            settings=self.settings,
        )

    def _make_translator(self) -> ResponsesTranslator:
        return ResponsesTranslator(self.provider_name, self._key)
