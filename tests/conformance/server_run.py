"""Plays one vector of the call server: a client, an agent, and speech services that do what the script says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import attrs

from micdrop_agent import wire
from micdrop_agent.call import AsItComes, Call, CallRefusedError, params
from micdrop_agent.call._params import UNAUTHORIZED, close_code
from micdrop_agent.testing import ScriptedProvider, ScriptedTTS, memory_link, run_virtual
from vector_agents import Builder
from vector_ops import Interpreter, Trace, UnknownOperationError
from vector_provider import script_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import ObjectReceiveStream

    from micdrop_agent import Agent, Turn
    from micdrop_agent.call import Hearing, Voice
    from micdrop_agent.testing import Backend, MemoryClient, MemoryLink
    from vector_ops import Op

STEP = 0.01
"""Virtual seconds after each step, in which everything that follows from it happens."""

_OPTIONS = {"agent", "tts_audio_bytes", "first_message", "generate_first_message", "history", "params"}
_MEMBERS = {"id", "description", "source", "verdict", "defect", "note", "timing_ms_informative", "options"} | {
    "provider",
    "script",
    "expected",
    "right",
    "settle_ms",
}


@attrs.define(eq=False)
class ServerTrace:
    """What one run showed."""

    frames: list[str | bytes] = attrs.Factory(list)
    timeline: list[dict[str, Any]] = attrs.Factory(list)
    close: dict[str, Any] | None = None
    conversation: list[dict[str, Any]] | None = None
    spoken: int = 0
    """How often the text-to-speech was started."""
    tts_texts: list[str] = attrs.Factory(list)
    problems: list[str] = attrs.Factory(list)
    requests: int = 0
    agent: Trace = attrs.Factory(Trace)


def run_server_vector(vector: dict[str, Any], backend: Backend) -> ServerTrace:
    """Play the script of ``vector``."""
    return run_virtual(backend, _Run(vector).play)


class _Words(Interpreter):
    """The operations of a scripted agent, as its methods do them, and not those of the turn.

    In the original run everything that follows from a chunk had happened before the next operation: nothing there
    took any time. Here that takes steps of the event loop, for which there is time after each chunk.
    """

    async def run(self, ops: Sequence[Op], agent: Agent, turn: Turn | None = None) -> Any:
        for op in ops:
            value = await super().run([op], agent, turn)
            if op["op"] == "write":
                await anyio.sleep(STEP / 10)
            if op["op"].startswith("return"):
                return value
        return None

    def _change(self, name: str, op: Op, agent: Agent, turn: Turn | None) -> None:
        if name == "end_call":
            agent.end_call()  # at once; that of the turn waits for the last chunk
        else:
            super()._change(name, op, agent, turn)


class _Ear:
    """A speech-to-text that says what the script tells it."""

    def __init__(self, trace: ServerTrace) -> None:
        self._trace = trace
        self.hearing: Hearing | None = None

    async def transcribe(self, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        self.hearing = hearing
        async for pcm in audio:
            self._trace.timeline.append({"stt_audio_bytes": len(pcm)})
        await anyio.sleep_forever()


class _Run:
    def __init__(self, vector: dict[str, Any]) -> None:
        if unknown := set(vector) - _MEMBERS:
            raise UnknownOperationError(f"members of the vector: {sorted(unknown)}")
        if unknown := set(vector["options"]) - _OPTIONS:
            raise UnknownOperationError(f"options of the server: {sorted(unknown)}")
        self.vector = vector
        self.options: dict[str, Any] = vector["options"]
        self.trace = ServerTrace()
        self.call: Call | None = None

    async def play(self) -> ServerTrace:
        trace = self.trace
        scripts = {
            f"{child.lower()}.test": script_of(lists, trace.agent)
            for child, lists in self.vector.get("provider", {}).items()
        }
        link, self.client = memory_link()
        self.client.on_frame = self._noted
        self.ear = _Ear(trace)
        self.voice = ScriptedTTS(audio_bytes=self.options.get("tts_audio_bytes", 640))
        async with ScriptedProvider(scripts) as self.provider:
            self.builder = Builder(
                trace.agent,
                _Words(trace.agent, self._no_answer),
                self.provider,
                first_chunk_timeout=None,
                like_original=self.vector["verdict"] == "keep",
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._serve, link)
                await anyio.sleep(STEP)
                for step in self.vector["script"]:
                    await self._step(step)
                    await anyio.sleep(step.get("settle", STEP * 1000) / 1000)
                await anyio.sleep(self.vector.get("settle_ms", 40) / 1000)
                self._look(self.client)
                tasks.cancel_scope.cancel()
        return trace

    def _no_answer(self, name: str) -> None:
        raise UnknownOperationError(f"an answer {name!r} that no client hears")

    # -- the server

    async def _serve(self, link: MemoryLink) -> None:
        error: BaseException | None = None
        try:
            await self._talk(link)
        except Exception as raised:  # noqa: BLE001  # the close code tells of it
            error = raised
            if not isinstance(raised, CallRefusedError | _CrashError):
                self.trace.problems.append(f"{type(raised).__name__}: {raised}")
        await link.close(*close_code(error))

    async def _talk(self, link: MemoryLink) -> None:
        asked = self.options.get("params")
        if asked is not None:
            if unknown := set(asked) - {"require", "crash", "unauthorized"}:
                raise UnknownOperationError(f"params: {sorted(unknown)}")
            await params(link, lambda given: self._validate(given, asked))
        agent = self.builder.agent = self.builder.build(self.options["agent"])
        async with agent:
            for item in wire.load(self.options.get("history", [])):
                agent._core.add(item)
            self.agent = agent
            # What the original does: every chunk goes to the voice as it is, and every item to the client.
            self.call = Call(
                link,
                agent=agent,
                stt=self.ear,
                tts=self,
                speech=AsItComes,
                first_message=self.options.get("first_message"),
                generate_first_message=self.options.get("generate_first_message", False),
                send_tools=True,
                send_system=True,
            )
            try:
                await self.call.run()
            finally:
                self.trace.conversation = wire.dump(agent.conversation)

    def _validate(self, given: Any, asked: dict[str, Any]) -> Any:
        if asked.get("crash"):
            raise _CrashError
        if asked.get("unauthorized"):
            raise CallRefusedError(UNAUTHORIZED, "Unauthorized")
        if "require" in asked and asked["require"] not in given:
            raise ValueError("a member is missing")
        return given

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        self.trace.spoken += 1
        try:
            await self.voice.synthesize(text, voice)
        finally:
            self.trace.tts_texts += self.voice.said[-1]

    # -- the client

    def _noted(self, frame: str | bytes) -> None:
        if isinstance(frame, str):
            self.trace.timeline.append({"to_client": frame})
        else:
            self.trace.timeline.append({"to_client_audio_bytes": len(frame)})

    def _look(self, client: MemoryClient) -> None:
        self.trace.requests = len(self.provider.requests)
        self.trace.frames = list(client.frames)
        if client.closed is not None:
            self.trace.close = {"code": client.closed[0], "reason": client.closed[1]}
        if self.trace.conversation is None and self.call is not None:
            self.trace.conversation = wire.dump(self.agent.conversation)

    async def _step(self, step: Op) -> None:
        do = getattr(self, f"_do_{step['op']}", None)
        if do is None:
            raise UnknownOperationError(f"step {step['op']!r}")
        await do(step)

    async def _do_client_text(self, step: Op) -> None:
        self.trace.timeline.append({"from_client": step["text"]})
        self.client.put(step["text"])

    async def _do_client_binary_command(self, step: Op) -> None:
        self.trace.timeline.append({"from_client_binary": step["text"]})
        self.client.put(step["text"].encode())

    async def _do_client_audio(self, step: Op) -> None:
        self.trace.timeline.append({"from_client_audio_bytes": step["bytes"]})
        self.client.put(bytes(step["bytes"]))

    async def _do_client_close(self, step: Op) -> None:
        self.trace.timeline.append({"client": "close"})
        self.client.close()

    async def _do_transcript(self, step: Op) -> None:
        if self.ear.hearing is None:
            raise AssertionError("a transcript before anybody has spoken")
        self.ear.hearing.final(step["text"])

    async def _do_server_answer(self, step: Op) -> None:
        assert self.call is not None
        self.call.answer()

    async def _do_server_speak(self, step: Op) -> None:
        assert self.call is not None
        self.call.speak(step["text"])

    async def _do_open_gate(self, step: Op) -> None:
        self.trace.agent.gate(step["gate"]).set()

    async def _do_await_close(self, step: Op) -> None:
        with anyio.fail_after(60):
            while self.client.closed is None:  # noqa: ASYNC110 - in virtual time looking costs nothing
                await anyio.sleep(STEP)

    async def _do_await_request(self, step: Op) -> None:
        with anyio.fail_after(60):
            while len(self.provider.requests) < step["count"]:  # noqa: ASYNC110 - as above
                await anyio.sleep(STEP)

    async def _do_sleep(self, step: Op) -> None:
        await anyio.sleep(step["ms"] / 1000)


class _CrashError(Exception):
    """What the validator of the params raises when it is to crash."""
