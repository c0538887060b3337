"""Who is asking: the name of the call in every line of the log, and the caller's context in hooks and tools."""

from __future__ import annotations

import contextvars
import logging
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent import ChatAgent, FallbackAgent, ProviderError, tool
from micdrop_agent.call import Call as PhoneCall
from micdrop_agent.testing import (
    BACKENDS,
    Call,
    ScriptedAgent,
    ScriptedProvider,
    ScriptedSTT,
    ScriptedTTS,
    memory_link,
    run_virtual,
    say,
)

if TYPE_CHECKING:
    from micdrop_agent import Agent, Turn
    from micdrop_agent.testing import Backend

both = pytest.mark.parametrize("backend", BACKENDS)
caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")


@tool
def fails() -> str:
    """Fail, which is logged."""
    raise LookupError


def _ids(caplog: pytest.LogCaptureFixture) -> set[tuple[str, Any]]:
    ours = [record for record in caplog.records if record.name.startswith("micdrop_agent")]
    return {(record.name, getattr(record, "call_id", None)) for record in ours}


@both
def test_every_line_names_its_call_also_without_a_store(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "micdrop_agent")

    async def scenario() -> None:
        down = ProviderError("down", kind="auth")

        def child(number: int) -> Agent:
            script: Any = [down] if number == 0 else [Call("fails"), "Fine."]
            return ScriptedAgent(script, tools=[fails])

        async def one(name: str) -> None:
            children = [lambda: child(0), lambda: child(1)]
            async with FallbackAgent(children, call_id=name) as agent:
                assert agent.call_id == name
                await agent.answer().wait()

        async with anyio.create_task_group() as tasks:
            for name in ("call-1", "call-2"):
                tasks.start_soon(one, name)

    run_virtual(backend, scenario)
    names = {name for name, _ in _ids(caplog)}
    assert {"micdrop_agent.FallbackAgent", "micdrop_agent.ScriptedAgent", "micdrop_agent.fallback.health"} & names
    assert {call_id for _, call_id in _ids(caplog)} == {"call-1", "call-2"}


@both
def test_lines_of_providers_and_of_a_whole_call_name_it_too(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "micdrop_agent")

    async def scenario() -> None:
        async with ScriptedProvider([say("Fine.")]) as provider:
            agent = ChatAgent(
                model="m",
                api_key="k",
                base_url=provider.base_url,
                connect=provider.connect,
                call_id="call-3",
                max_context_tokens=1,  # the budget says that this is too little
            )
            link, client = memory_link()
            stt = ScriptedSTT([ConnectionError("down")], "Hello?")
            call = PhoneCall(link, agent=agent, stt=stt, tts=ScriptedTTS())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call.run)
                await anyio.sleep(0.1)
                client.put("Nonsense")
                client.speak()
                await anyio.sleep(1)
                client.speak()
                await anyio.sleep(1)
                client.close()

    run_virtual(backend, scenario)
    assert {("micdrop_agent.budget", "call-3"), ("micdrop_agent.call", "call-3")} <= _ids(caplog)
    assert {call_id for _, call_id in _ids(caplog)} == {"call-3"}


@both
@pytest.mark.parametrize("guessed", [False, True])
def test_the_context_of_the_caller_reaches_hooks_and_tools(backend: Backend, guessed: bool) -> None:
    seen: list[str] = []

    def note(where: str) -> str:
        seen.append(f"{where} {caller.get()}")
        return where

    @tool(filler=lambda: note("filler"), filler_after=0.1)
    async def slow() -> str:
        """Be slow."""
        await anyio.sleep(0.5)
        return note("tool")

    @tool(on_cancel="detach")
    async def late() -> str:
        """Be late."""
        await anyio.sleep(0.2)
        return note("late")

    @tool(thread=True)
    def thread() -> str:
        """Block."""
        return note("thread")

    def hook(agent: Agent, turn: Turn) -> None:
        del agent, turn
        note("hook")

    async def scenario() -> None:
        calls = [Call("slow"), Call("late"), Call("thread")]
        async with ScriptedAgent([calls, "Done."], tools=[slow, late, thread], on_before_answer=hook) as agent:
            caller.set("Ada")
            if guessed:
                guess = agent.speculate("hi")
                await anyio.sleep(0.1)
                answer = guess.adopt("hi")
                assert answer is not None
            else:
                answer = agent.answer()
            caller.set("Bob")  # what comes later is not theirs
            await answer.wait()

    run_virtual(backend, scenario)
    assert sorted(seen) == [f"{where} Ada" for where in ("filler", "hook", "late", "thread", "tool")]


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="call_id"):
        ScriptedAgent(["x"], call_id="")
    with pytest.raises(TypeError, match="call_id"):
        ScriptedAgent(["x"], call_id=5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
