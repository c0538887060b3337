"""The children of a ``FallbackAgent``: bad input, building, options, tools, logger, memory."""

from __future__ import annotations

import gc
import logging
import math
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from fallback_kit import Cast, Heard, down, listen, series, stored
from micdrop_agent.errors import AllAgentsFailedError
from micdrop_agent.fallback import FallbackAgent, HealthRegistry
from micdrop_agent.messages import Message
from micdrop_agent.providers.echo import EchoAgent
from micdrop_agent.testing import BACKENDS, HANG, Backend, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.turn import Turn

both = pytest.mark.parametrize("backend", BACKENDS)


def child(*acts: Any) -> Callable[[], Agent]:
    return lambda: ScriptedAgent(acts)


# -- bad input


@pytest.mark.parametrize(
    ("factories", "kind", "words"),
    [
        ([], ValueError, "at least one"),
        (None, TypeError, "iterable"),
        ("ab", TypeError, "list of functions"),
        (child("a"), TypeError, "list of functions"),
        ([EchoAgent()], TypeError, "function that makes an agent"),
        ([child("a"), EchoAgent()], TypeError, r"factories\[1\]"),
        ([lambda: None], TypeError, "not an Agent"),
        ([lambda: "agent"], TypeError, "not an Agent"),
    ],
)
def test_wrong_factories_are_refused_at_once(factories: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        FallbackAgent(factories)


@pytest.mark.parametrize("name", ["first_chunk_timeout", "give_up_after", "hedge_after"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, "1", True])
def test_a_wrong_time_is_refused(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises((TypeError, ValueError), match=name):
        FallbackAgent([child("a")], **options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("after_partial", "contniue"),
        ("after_partial", None),
        ("prefer", "last"),
        ("prebuild", 1),
        ("give_up_text", 3),
        ("health", {}),
        ("hedge_after", "p99"),
        ("names", "a"),
        ("names", ["a", "b"]),
        ("names", [1]),
        ("buffer_size", -1),
        ("raise_on_failure", "no"),
    ],
)
def test_a_wrong_option_is_refused_by_name(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises((TypeError, ValueError), match=name):
        FallbackAgent([child("a")], **options)


def test_names_that_are_not_different_are_refused() -> None:
    with pytest.raises(ValueError, match="different"):
        FallbackAgent([child("a"), child("b")], names=["x", "x"])


def test_a_first_factory_that_raises_says_so_at_once() -> None:
    def broken() -> Agent:
        raise OSError("no key")

    with pytest.raises(OSError, match="no key"):
        FallbackAgent([broken])


@both
def test_the_same_agent_twice_is_a_child_that_failed(backend: Backend) -> None:
    one = ScriptedAgent([down()])

    async def scenario() -> None:
        async with FallbackAgent([lambda: one, lambda: one]) as agent:
            heard = await listen(agent)
            assert isinstance(heard.error, AllAgentsFailedError)
            assert "in use already" in str(heard.error.attempts[1].error)

    run_virtual(backend, scenario)


@both
def test_an_agent_of_another_supervisor_is_refused(backend: Backend) -> None:
    one = ScriptedAgent(["a"])
    FallbackAgent([lambda: one])
    with pytest.raises(ValueError, match="in use already"):
        FallbackAgent([lambda: one])


@both
def test_an_open_agent_and_a_closed_one_are_refused(backend: Backend) -> None:
    async def scenario() -> None:
        async with EchoAgent() as opened:
            with pytest.raises(ValueError, match="open or closed"):
                FallbackAgent([lambda: opened])
        with pytest.raises(ValueError, match="open or closed"):
            FallbackAgent([lambda: opened])

    run_virtual(backend, scenario)


@both
def test_a_factory_that_returns_no_agent_later_is_a_child_that_failed(backend: Backend) -> None:
    factories: list[Any] = [child(down()), lambda: 7, child("c")]

    async def scenario() -> Heard:
        async with FallbackAgent(factories) as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert heard.text == "c"
    assert isinstance(heard.result.attempts[1].error, TypeError)


@both
def test_a_supervisor_inside_itself_is_refused(backend: Backend) -> None:
    async def scenario() -> None:
        async with FallbackAgent([child(down()), lambda: agent]) as agent:
            heard = await listen(agent)
            assert isinstance(heard.error, AllAgentsFailedError)

    run_virtual(backend, scenario)


@both
def test_a_child_cannot_be_opened_or_asked_by_others(backend: Backend) -> None:
    cast = Cast(["a"])

    async def scenario() -> None:
        async with cast.agent() as agent:
            assert agent.active is cast.made[0][0]
            with pytest.raises(RuntimeError, match="belongs to a FallbackAgent"):
                cast.made[0][0].answer()
            with pytest.raises(RuntimeError, match="belongs to a FallbackAgent"):
                async with cast.made[0][0]:
                    pass

    run_virtual(backend, scenario)


# -- building and closing


class Resourceful(ScriptedAgent):
    """Counts how often it was opened and closed."""

    log: list[str]

    def __init__(self, log: list[str], *answers: Any, fails: bool = False) -> None:
        super().__init__(*answers)
        self.log = log
        self.fails = fails
        core: Any = self._core
        core.start, core.stop_resources = self.begin, self.end

    async def begin(self) -> None:
        self.log.append("start")
        if self.fails:
            raise down("connection")

    async def prewarm(self) -> None:
        self.log.append("prewarm")
        await anyio.sleep(5)

    async def end(self) -> None:
        self.log.append("stop")


@both
def test_children_are_built_when_first_needed(backend: Backend) -> None:
    cast = Cast(["a"], ["b"])

    async def scenario() -> None:
        async with cast.agent() as agent:
            await listen(agent)

    run_virtual(backend, scenario)
    assert [len(made) for made in cast.made] == [1, 0]


@both
def test_a_child_is_built_again_after_it_failed_and_closed_in_between(backend: Backend) -> None:
    log: list[str] = []
    cast = Cast(lambda: Resourceful(log, [down()]), ["b"])

    async def scenario() -> None:
        async with cast.agent(prefer="first") as agent:
            await listen(agent)
            await anyio.sleep(1)
            assert log == ["start", "stop"]
            await listen(agent)

    run_virtual(backend, scenario)
    assert log == ["start", "stop"] * 2
    assert [len(made) for made in cast.made] == [2, 1]


@both
@pytest.mark.parametrize("end", ["finished", "cancelled", "agent closed"])
def test_a_failed_child_is_closed_when_nobody_waits_for_the_next_one_any_more(backend: Backend, end: str) -> None:
    log: list[str] = []
    cast = Cast(lambda: Resourceful(log, [down()]), ["b"] if end == "finished" else ["b", HANG])

    async def scenario() -> None:
        async with cast.agent() as agent:
            async for _ in agent.answer():
                assert log == ["start"]
                if end == "cancelled":
                    agent.cancel()
                elif end == "agent closed":
                    return
            await anyio.sleep(1)
            assert log == ["start", "stop"]

    run_virtual(backend, scenario)
    assert log == ["start", "stop"]


@both
def test_prebuild_makes_all_children_ready_and_waits_for_no_server(backend: Backend) -> None:
    log: list[str] = []
    cast = Cast(lambda: Resourceful(log, ["a"]), lambda: Resourceful(log, ["b"]))

    async def scenario() -> None:
        async with cast.agent(prebuild=True) as agent:
            assert anyio.current_time() == pytest.approx(0)
            await anyio.sleep(1)
            assert sorted(log) == ["prewarm", "prewarm", "start", "start"]
            assert (await listen(agent)).text == "a"
            assert log.count("start") == 2

    run_virtual(backend, scenario)
    assert log.count("stop") == 2


@both
def test_prebuild_survives_what_cannot_be_built(backend: Backend) -> None:
    log: list[str] = []

    def broken() -> Agent:
        raise OSError("no key")

    cast = Cast(lambda: Resourceful(log, ["a"], fails=True), broken, ["c"])

    async def scenario() -> Heard:
        async with cast.agent(prebuild=True) as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert heard.text == "c"
    assert [attempt.agent for attempt in heard.result.attempts] == ["a", "b"]
    assert log.count("start") == log.count("stop") == 2


@both
def test_a_child_that_closes_itself_is_closed_for_good_and_built_anew(backend: Backend) -> None:
    log: list[str] = []

    class Suicidal(Resourceful):
        async def generate_answer(self, turn: Turn) -> None:
            await turn.write("Bye. ")
            await self.aclose()
            await turn.write("Really.")

    cast = Cast(lambda: Suicidal(log))

    async def scenario() -> None:
        async with cast.agent() as agent:
            for _ in range(2):
                heard = await listen(agent)
                assert (heard.text, heard.error) == ("Bye. Really.", None)
            await anyio.sleep(1)

    run_virtual(backend, scenario)
    assert len(cast.made[0]) == 2
    assert sorted(log) == ["start", "start", "stop", "stop"]


@both
def test_a_child_whose_aclose_raises_does_not_keep_the_others_open(backend: Backend) -> None:
    log: list[str] = []

    class Stubborn(Resourceful):
        async def aclose(self) -> None:
            raise OSError("cannot close")

    cast = Cast(lambda: Stubborn(log, [down()]), lambda: Stubborn(log, ["b"]), lambda: Resourceful(log, ["c"]))

    async def scenario() -> None:
        async with cast.agent(prebuild=True) as agent:
            assert (await listen(agent)).text == "b"

    run_virtual(backend, scenario)
    assert log.count("stop") == 3


@both
@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_a_child_whose_resources_cannot_be_closed_does_not_keep_the_others_open(backend: Backend, how: str) -> None:
    log: list[str] = []

    class Stubborn(Resourceful):
        async def end(self) -> None:
            if how == "hangs":
                await anyio.sleep_forever()
            raise OSError("cannot close")

    cast = Cast(lambda: Stubborn(log, ["a"]), lambda: Resourceful(log, ["b"]), lambda: Resourceful(log, ["c"]))

    async def scenario() -> None:
        async with cast.agent(prebuild=True) as agent:
            assert (await listen(agent)).text == "a"
            raise LookupError("of the host")

    with pytest.raises(LookupError, match="of the host"):
        run_virtual(backend, scenario)
    assert log.count("stop") == 2


@both
def test_an_old_attempt_that_is_still_starting_does_not_count_as_the_start_of_the_new_child(backend: Backend) -> None:
    log: list[str] = []

    class Slow(Resourceful):
        async def begin(self) -> None:
            self.log.append("begin")
            with anyio.CancelScope(shield=True):
                await anyio.sleep(3)
            self.log.append("start")

    cast = Cast(lambda: Slow(log, ["a"]), series([down()], ["b"]))

    async def scenario() -> None:
        async with cast.agent(first_chunk_timeout=1.0) as agent:
            assert isinstance((await listen(agent)).error, AllAgentsFailedError)
            assert (await listen(agent)).text == "b"

    run_virtual(backend, scenario)
    assert [entry for entry in log if entry != "stop"] == ["begin", "begin", "start", "start"]


# -- what children keep, and what they share


@both
def test_children_keep_their_tools_and_share_those_of_the_supervisor(backend: Backend) -> None:
    offered: list[list[str]] = []

    def note(turn: Turn) -> None:
        offered.append([each.name for each in turn.tools])

    @tool
    def shared() -> str:
        """Shared."""
        return "shared"

    @tool
    def own() -> str:
        """Own."""
        return "own"

    cast = Cast(
        lambda: ScriptedAgent([note, down()], tools=[own]),
        lambda: ScriptedAgent([note, Call("shared"), Call("own"), "b"]),
    )

    async def scenario() -> None:
        async with cast.agent(tools=[shared]) as agent:
            await listen(agent)
            calls = [line for line in stored(agent) if line.startswith("result")]
            assert calls[0] == 'result:"shared"'
            assert "there is no tool" in calls[1]

    run_virtual(backend, scenario)
    assert offered == [["own", "shared"], ["shared"]]


@both
def test_a_tool_gets_the_agent_that_the_application_holds(backend: Backend) -> None:
    seen: list[Agent] = []

    @tool
    def look(agent: Agent) -> str:
        """Look."""
        seen.append(agent)
        return "ok"

    inner = Cast(lambda: ScriptedAgent([Call("look"), "a"], tools=[look]))
    outer = Cast(inner.agent)

    async def scenario() -> None:
        async with outer.agent() as agent:
            await listen(agent)
            assert seen == [agent]

    run_virtual(backend, scenario)


@both
def test_the_logger_is_handed_down_also_to_children_built_later(backend: Backend) -> None:
    logger = logging.getLogger("test.fallback.logger")
    inner = Cast(["i"])
    cast = Cast([down()], ["b"], inner.agent)

    async def scenario() -> None:
        async with cast.agent(prebuild=True) as agent:
            agent.logger = logger
            await listen(agent)
            await listen(agent)
            everybody = [cast.made[0][0], cast.made[1][0], cast.made[2][0], inner.made[0][0]]
            assert all(each.logger is logger for each in everybody)

    run_virtual(backend, scenario)


@both
def test_a_child_takes_part_in_many_answers(backend: Backend) -> None:
    cast = Cast(["a"], ["b"])

    async def scenario() -> None:
        async with cast.agent() as agent:
            for _ in range(20):
                assert (await listen(agent)).text == "a"

    run_virtual(backend, scenario)
    assert len(cast.made[0]) == 1


@both
def test_a_nested_supervisor_is_a_child_like_any_other(backend: Backend) -> None:
    deepest = Cast([down()], ["deep"])
    middle = Cast([down()], lambda: deepest.agent(names=["e", "f"]))
    outer = Cast([down()], lambda: middle.agent(names=["c", "d"]))

    async def scenario() -> None:
        async with outer.agent() as agent:
            heard = await listen(agent)
            assert heard.text == "deep"
            assert heard.switches == [("a", "b", False), ("c", "d", False), ("e", "f", False)]
            assert (await listen(agent)).switches == []
            assert stored(agent) == ["u:Hello?", "a:deep"] * 2
            assert agent.conversation[0] == Message("system", "prompt 1")

    run_virtual(backend, scenario)


@both
def test_patience_is_for_the_last_child_of_all(backend: Backend) -> None:
    patient: list[bool] = []

    def note(turn: Turn) -> None:
        patient.append(turn.patient)

    inner = Cast([note, down()], [note, down()])
    outer = Cast(inner.agent, [note, "b"])

    async def scenario() -> None:
        async with outer.agent() as agent:
            await listen(agent)

    run_virtual(backend, scenario)
    assert patient == [False, False, True]


# -- memory


def objects_alive() -> int:
    for _ in range(3):
        gc.collect()
    return len(gc.get_objects())


@both
def test_memory_does_not_grow_over_2000_answers(backend: Backend) -> None:
    def fail(turn: Turn) -> None:
        raise down()  # a new one each time: an error that is raised again keeps all its tracebacks

    cast = Cast(lambda: ScriptedAgent([fail], ["a"], [HANG], ["Half ", fail]), [0.1, "b"])
    health = HealthRegistry(failures=10**6)

    async def answers(agent: FallbackAgent, count: int) -> None:
        for number in range(count):
            agent.conversation.replace(agent.conversation[:1])
            answer = agent.answer()
            if number % 7 == 0:
                await anyio.lowlevel.checkpoint()
                agent.cancel()
            await answer.wait()
            for made in cast.made:
                made.clear()

    async def scenario() -> tuple[int, int]:
        async with cast.agent(first_chunk_timeout=1.0, hedge_after=0.5, health=health, prefer="first") as agent:
            # Nobody's logger: pytest keeps every record, and with it what the record tells of.
            agent.logger = logging.Logger("silent", logging.CRITICAL + 1)  # noqa: LOG001 - on purpose, as said
            await answers(agent, 200)
            before = objects_alive()
            await answers(agent, 1800)
            return before, objects_alive()

    before, after = run_virtual(backend, scenario, time_limit=10**9, max_steps=10**9)
    assert after - before < 500
