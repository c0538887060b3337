"""Every mechanism of turn-taking, mixed at random, on a ``FallbackAgent`` of strict models that fail.

The rules of the machine are what a host does; what they have written down is played on both event loops when the machine
is torn down (a rule cannot await, and a scope stays in its task). Every request is read by rules of strict servers that
were written without a look at the library, every invariant is checked, and the loops must agree.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
import attrs
import strict_rules
from core_support import log_of
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from step_support import CALLS, STOP, Model, Provider, call
from test_provider_strict import MAKERS, RULES

from micdrop_agent import (
    AgentSwitched,
    AllAgentsFailedError,
    AnswerFinished,
    ConversationSummarized,
    FallbackAgent,
    Message,
    ProviderError,
    Retry,
    Summarize,
    Timeouts,
    ToolFinishedLate,
    TurnContext,
    tool,
)
from micdrop_agent.pairs import first_open_call
from micdrop_agent.testing import BACKENDS, Probe, read, run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent import Agent, Answer, Item, Turn
    from micdrop_agent._core.guess import Guess
    from micdrop_agent.model.protocol import Request
    from micdrop_agent.testing import Backend

DOWN = ProviderError("down", kind="server", retryable=False)
TOO_LONG = ProviderError("too long", kind="context_length", retryable=False)
REPLIES: dict[str, list[Any]] = {
    "text": [0.1, ["One ", "two "], 0.3, ["three.", *STOP]],
    "quick": [["Yes.", *STOP]],
    "fails": [0.1, DOWN],
    "cut": [["One ", "two "], 0.2, DOWN],
    "too long": [TOO_LONG],
    "slow tool": [["I look. ", call("look", "call_0"), *CALLS]],
    "detached": [[call("book", "call_0"), call("book", "call_1"), *CALLS]],
    "hand over": [["Wait. ", call("hand_over", "h"), *CALLS]],
    "silent": ["hang"],
    "value": [0.1, ['{"mood": "fine"}', *STOP]],
}


@attrs.frozen
class Mood:
    mood: str


@tool(filler=["One moment. ", "Still looking. "], filler_after=0.2)
async def look(turn: Turn) -> str:
    """Look, and say so."""
    await anyio.sleep(0.3)
    turn.say("Nearly. ")
    await anyio.sleep(0.3)
    return "a cat"


@tool(on_cancel="detach")
async def book() -> str:
    """Book a table."""
    await anyio.sleep(0.9)
    return "table 5"


@tool
def hand_over(agent: Agent) -> str:
    """Hand over."""
    agent.hand_off(system_prompt="You are billing.", note="The caller is Ada.")
    return "handed over"


def _hook(agent: Agent, turn: Turn) -> TurnContext:
    del agent, turn
    return TurnContext(system="It is Friday.", items=[Message("system", "Open until six.")])


async def _brief(items: Sequence[Item]) -> str:
    await anyio.sleep(0.4)
    return f"{len(items)} items"


class StrictProvider(Provider):
    """As scripted, but no strict server would have to refuse a request."""

    def __init__(self, broken: list[str], *scripts: Sequence[Any]) -> None:
        super().__init__(*scripts)
        self._builders = {name: make() for name, make in MAKERS.items()}
        self._broken = broken

    async def open(self, request: Request) -> Any:
        for dialect, builder in self._builders.items():
            problems = RULES[dialect](strict_rules.strict_json(builder.build(request)))
            self._broken += [f"{dialect}: {problem}" for problem in problems]
        return await super().open(request)


class StrictModel(Model):
    def __init__(self, broken: list[str], *scripts: Sequence[Any]) -> None:
        super().__init__(
            *scripts,
            tools=[look, book, hand_over],
            system_prompt="Be kind.",
            max_context_tokens=60,
            summarize=Summarize(_brief, keep_turns=1, at=0.5),
            retry=Retry(max_retries=0),
            timeouts=Timeouts(first_chunk=2.0, between_chunks=2.0),
        )
        self.served = StrictProvider(broken, *scripts)


@attrs.define(eq=False)
class Host:
    """Plays what the machine has written down."""

    agent: FallbackAgent
    probe: Probe
    tasks: Any
    guess: Guess | None = None
    answer: Answer | None = None

    def read(self, answer: Answer | None) -> None:
        if answer is not None:
            self.answer = answer
            self.tasks.start_soon(read, self.probe, answer)

    async def play(self, op: tuple[Any, ...]) -> None:
        await getattr(self, f"do_{op[0]}")(*op[1:])

    async def do_wait(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def do_ask(self, text: str) -> None:
        self.agent.add_user_message(text)
        self.read(self.agent.answer())

    async def do_cancel(self, heard: int | None) -> None:
        self.agent.cancel(heard)

    async def do_pause(self, heard: int | None) -> None:
        self.agent.cancel(heard, pause=True)

    async def do_resume(self) -> None:
        try:
            answer = self.agent.resume()
        except RuntimeError:  # it says why; the conversation is as it was
            return
        if answer is not self.answer:
            self.read(answer)

    async def do_speculate(self, text: str) -> None:
        self.guess = self.agent.speculate(text)

    async def do_adopt(self, text: str) -> None:
        guess, self.guess = self.guess, None
        if guess is not None:
            self.read(guess.adopt(text))

    async def do_note(self, text: str) -> None:
        self.agent.add_message("system", text)

    async def do_question(self) -> None:
        async def ask() -> None:
            with contextlib.suppress(AllAgentsFailedError):  # what these models say fits by chance only
                await self.agent.ask(Mood, "How is the caller?")

        self.tasks.start_soon(ask)

    async def do_hand_off(self, prompt: str) -> None:
        self.agent.hand_off(system_prompt=prompt)


async def _play(ops: Sequence[tuple[Any, ...]], replies: Sequence[Sequence[str]]) -> tuple[Any, ...]:
    broken: list[str] = []
    scripts = [[list(REPLIES[name]) for name in child] for child in replies]

    def child(number: int) -> Callable[[], Agent]:
        return lambda: StrictModel(broken, *[[*script] for script in scripts[number]])

    agent = FallbackAgent(
        [child(number) for number in range(len(scripts))],
        names=["a", "b"][: len(scripts)],
        on_before_answer=_hook,
        raise_on_failure=False,
        max_guesses=9,
    )
    probe = Probe()
    async with agent:
        probe.watch(agent)
        seen = log_of(agent, AnswerFinished, AgentSwitched, ToolFinishedLate, ConversationSummarized)
        async with anyio.create_task_group() as tasks:
            host = Host(agent, probe, tasks)
            for op in ops:
                await host.play(op)
                assert first_open_call(list(agent.conversation)) is None or agent.answering
            await anyio.sleep(40)  # what comes late has come
            agent.cancel()
            await anyio.sleep(1)
    probe.trace.final = list(agent.conversation)
    assert broken == []
    # A summary and a late result may come into one moment between two answers, in any order.
    return probe.trace.violations, sorted(type(event).__name__ for event in seen), list(agent.conversation)


class TurnTaking(RuleBasedStateMachine):
    """What a host may do with an agent, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[Any, ...]] = []
        self.replies: list[list[str]] = [["text"], ["quick"]]

    @initialize(
        replies=st.lists(st.lists(st.sampled_from(sorted(REPLIES)), min_size=1, max_size=5), min_size=2, max_size=2)
    )
    def models(self, replies: list[list[str]]) -> None:
        """How the two models answer, one after the other."""
        self.replies = [[*child, "quick"] for child in replies]

    # No time is that of anything else: what falls into one tick of the clock may come in any order.
    @rule(tick=st.integers(1, 14))
    def wait(self, tick: int) -> None:
        self.ops.append(("wait", 0.0137 + tick * 0.0931))

    @rule(text=st.sampled_from(["Hello?", "And then?", "My number is 5550100, and I wait for so long. " * 2]))
    def ask(self, text: str) -> None:
        self.ops += [("ask", text), ("wait", 0.4409)]

    @rule(text=st.sampled_from(["A table, please.", "Look!"]), tick=st.integers(1, 9))
    def ask_and_interrupt(self, text: str, tick: int) -> None:
        self.ops += [("ask", text), ("wait", 0.0173 + tick * 0.1131), ("cancel", None), ("wait", 1.2107)]

    @rule(heard=st.none() | st.integers(0, 12))
    def cancel(self, heard: int | None) -> None:
        self.ops.append(("cancel", heard))

    @rule(heard=st.none() | st.integers(0, 12))
    def pause(self, heard: int | None) -> None:
        self.ops.append(("pause", heard))

    @rule()
    def resume(self) -> None:
        self.ops.append(("resume",))

    @rule(text=st.sampled_from(["book a table", "so"]))
    def speculate(self, text: str) -> None:
        self.ops.append(("speculate", text))

    @rule(text=st.sampled_from(["Book a table.", "So?", "No."]))
    def adopt(self, text: str) -> None:
        self.ops.append(("adopt", text))

    @rule()
    def note(self) -> None:
        self.ops.append(("note", "The door is open."))

    @rule()
    def question(self) -> None:
        self.ops.append(("question",))

    @rule(prompt=st.sampled_from(["You are billing.", "You are support."]))
    def hand_off(self, prompt: str) -> None:
        self.ops.append(("hand_off", prompt))

    def teardown(self) -> None:
        outcomes: dict[Backend, Any] = {}
        for backend in BACKENDS:
            outcomes[backend] = run_virtual(backend, _play, self.ops, self.replies)
            assert outcomes[backend][0] == []
        assert outcomes["asyncio"][1:] == outcomes["trio"][1:]


TestTurnTaking = TurnTaking.TestCase
TestTurnTaking.settings = settings(
    max_examples=25,
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
