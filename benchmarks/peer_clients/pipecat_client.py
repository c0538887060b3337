"""pipecat-ai: ``OpenAILLMService`` in the smallest pipeline there can be, one for each conversation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import openai as sdk
from _base import Peer, messages
from loguru import logger
from pipecat.frames.frames import (
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.workers.runner import WorkerRunner

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

logger.remove()


class Ear(FrameProcessor):  # type: ignore[misc]  # checked without Pipecat, which has no types then
    """Takes the text that leaves the pipeline."""

    def __init__(self) -> None:
        super().__init__(enable_direct_mode=True)
        self.heard: asyncio.Queue[str | None] = asyncio.Queue()
        self.begun = False

    async def process_frame(self, frame: Any, direction: Any) -> None:
        """One frame."""
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMFullResponseStartFrame):
            self.begun = True
        elif isinstance(frame, LLMTextFrame) and self.begun:
            self.heard.put_nowait(frame.text)
        elif isinstance(frame, LLMFullResponseEndFrame | InterruptionFrame) and self.begun:
            self.heard.put_nowait(None)
        await self.push_frame(frame, direction)


class Line:
    """One pipeline."""

    def __init__(self, service: Any) -> None:
        self.ear = Ear()
        self.worker = PipelineWorker(
            Pipeline([service, self.ear]),
            cancel_on_idle_timeout=False,
            idle_timeout_secs=None,
            enable_rtvi=False,
            enable_turn_tracking=False,
        )
        self.started = asyncio.Event()
        self.worker.add_event_handler("on_pipeline_started", self.on_started)

    async def on_started(self, worker: Any, frame: Any) -> None:
        """The pipeline runs."""
        del worker, frame
        self.started.set()


class Client(Peer):
    """Pipelines over one shared SDK client."""

    statement = (
        "from pipecat.pipeline.worker import PipelineWorker; from pipecat.services.openai.llm import OpenAILLMService"
    )

    def __init__(self, url: str) -> None:
        super().__init__(url)
        limits = sdk.DefaultAsyncHttpxClient(timeout=60.0, limits=no_limits())
        self.client = sdk.AsyncOpenAI(api_key="bench", base_url=url, max_retries=0, http_client=limits)
        self.runner: Any = None
        self.lines: dict[str, Line] = {}
        self.free: list[Line] = []

    async def start(self, *models: str) -> list[Line]:
        """So many running pipelines."""
        if self.runner is None:
            self.runner = WorkerRunner(handle_sigint=False)
            self.running = asyncio.create_task(self.runner.run(auto_end=False))
        client = self.client

        class Service(OpenAILLMService):  # type: ignore[misc]  # likewise
            def create_client(self, **_options: Any) -> Any:
                return client

        lines = [
            Line(Service(api_key="bench", base_url=self.url, settings=OpenAILLMService.Settings(model=model)))
            for model in models
        ]
        await self.runner.add_workers(*(line.worker for line in lines))
        for line in lines:
            await line.started.wait()
        return lines

    async def prepare(self, model: str) -> None:
        """The pipeline of ``model``."""
        if model not in self.lines:
            (self.lines[model],) = await self.start(model)

    async def crowd(self, model: str, many: int) -> None:
        """One pipeline for each call."""
        self.free = await self.start(*[model] * many)

    async def chunks(self, model: str, count: int) -> AsyncGenerator[str, None]:
        """One answer; a consumer that leaves early interrupts the pipeline, as a barge-in does."""
        line = self.free.pop() if self.free else self.lines[model]
        line.ear.begun, line.ear.heard = False, asyncio.Queue()
        whole = False
        await line.worker.queue_frame(LLMContextFrame(LLMContext(messages(count))))
        try:
            while (text := await line.ear.heard.get()) is not None:
                yield text
            whole = True
        finally:
            if not whole:
                await line.worker.queue_frame(InterruptionFrame())


def no_limits() -> Any:
    """A pool without limits, of whichever HTTP client the SDK uses."""
    kind: Any = type(sdk.DEFAULT_CONNECTION_LIMITS)
    return kind(max_connections=None, max_keepalive_connections=None)
