"""``assert_no_leaks`` sees what it promises to see, and nothing else."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import anyio
import pytest

from micdrop_agent import ProviderError
from micdrop_agent.testing import BACKENDS, ScriptedAgent, assert_no_leaks, run_virtual

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

both = pytest.mark.parametrize("backend", BACKENDS)


@both
def test_an_agent_that_is_left_in_mid_answer_leaves_nothing(backend: Backend) -> None:
    async def scenario() -> None:
        async with assert_no_leaks(), ScriptedAgent(["One ", 1.0, "two."]) as agent:
            answer = agent.answer()
            assert await answer.receive() == "One "

    run_virtual(backend, scenario)


@both
def test_a_socket_that_is_dropped_is_a_leak(backend: Backend) -> None:
    async def scenario() -> None:
        async with assert_no_leaks():
            socket.socket()

    with pytest.raises(AssertionError, match="resources are left: unclosed <socket"):
        run_virtual(backend, scenario)


@both
def test_a_memory_stream_that_is_dropped_is_a_leak(backend: Backend) -> None:
    async def scenario() -> None:
        async with assert_no_leaks():
            anyio.create_memory_object_stream[str](1)

    with pytest.raises(AssertionError, match="resources are left: Unclosed <MemoryObject"):
        run_virtual(backend, scenario)


@both
def test_what_was_there_before_is_not_held_against_the_block(backend: Backend) -> None:
    async def scenario() -> None:
        before = socket.socket()
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            await anyio.lowlevel.checkpoint()
            async with assert_no_leaks():
                pass
            group.cancel_scope.cancel()
        before.close()

    run_virtual(backend, scenario)


@both
def test_an_error_of_the_block_is_told_and_not_what_it_left(backend: Backend) -> None:
    async def scenario() -> None:
        async with assert_no_leaks():
            left = socket.socket()
            try:
                raise LookupError("the block")
            finally:
                left.close()

    with pytest.raises(LookupError, match="the block"):
        run_virtual(backend, scenario)


@both
def test_a_script_that_raises_the_same_error_again_and_again_keeps_nothing_of_earlier_answers(backend: Backend) -> None:
    """An error that is raised again keeps the frames of every time before, and with them whole agents."""
    error = ProviderError("scripted", kind="server")

    async def scenario() -> None:
        async with ScriptedAgent([error], raise_on_failure=False) as agent:
            for _ in range(5):
                await agent.answer().wait()

    run_virtual(backend, scenario)
    frames = 0
    trace = error.__traceback__
    while trace is not None:
        frames, trace = frames + 1, trace.tb_next
    assert frames < 10
