"""Random trees of scripted children, the supervisor made of one, and a model of its undisturbed answer.

The model knows no tasks and no event loop: a child is the list of what it would do and when, a supervisor is a
function of those of its children. It is the oracle of tests/test_fallback_invariants.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio
import attrs
from hypothesis import strategies as st

from fallback_kit import down
from micdrop_agent.fallback import FallbackAgent
from micdrop_agent.messages import ToolCall
from micdrop_agent.testing import Act, ScriptedAgent, read
from micdrop_agent.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.testing import Probe

End: TypeAlias = Literal["ok", "fail", "bug", "filter", "factory", "hang", "linger", "swallow"]
Partial: TypeAlias = Literal["continue", "restart", "stop"]
SILENT: tuple[End, ...] = ("hang", "linger", "swallow")
"""Ends that only a clock or a rival ends; nothing was said before."""

EFFECTS = ("say", "tool")


@attrs.frozen
class Leaf:
    """A scripted child: waits and effects, then its end."""

    name: str
    acts: tuple[tuple[float, str], ...]
    wait: float
    end: End


@attrs.frozen
class Sup:
    """A supervisor of ``children``."""

    name: str
    children: tuple[Node, ...]
    timeout: float
    hedge: float | None
    partial: Partial


Node: TypeAlias = Leaf | Sup


# -- drawing one


class _Names:
    """Names, and times that never meet: each one carries a mark of its own."""

    def __init__(self, *, ties: bool) -> None:
        self.count = 0
        self.leaves = 0
        self.supervisors = 0
        self.ties = ties

    def leaf(self) -> str:
        self.leaves += 1
        return f"n{self.leaves}x"

    def supervisor(self) -> str:
        self.supervisors += 1
        return f"s{self.supervisors}"

    def time(self, whole: float) -> float:
        if self.ties:
            return whole
        self.count += 1
        # Sums of different marks differ, whatever is added to what.
        return whole + (1 << (self.count % 36)) * 1e-12 + self.count * 1e-5


def leaves(draw: st.DrawFn, names: _Names, *, first: bool) -> Leaf:
    acts = draw(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("say", "say", "tool"))), max_size=3))
    ends: list[End] = ["ok", "ok", "fail", "fail", "bug", "filter"]
    if not acts:
        ends += SILENT
    if not first and not acts:
        ends.append("factory")
    return Leaf(
        names.leaf(),
        tuple((names.time(float(wait)) if wait else 0.0, effect) for wait, effect in acts),
        names.time(float(draw(st.integers(0, 2)))),
        draw(st.sampled_from(ends)),
    )


def supervisors(draw: st.DrawFn, names: _Names, depth: int, *, restart: bool) -> Sup:
    count = draw(st.integers(1, 3))
    nested = [depth > 0 and draw(st.integers(0, 3)) == 0 for _ in range(count)]
    partials: list[Partial] = ["continue", "continue", "stop"]
    if restart:
        partials.append("restart")
    return Sup(
        names.supervisor(),
        tuple(
            supervisors(draw, names, depth - 1, restart=restart) if inner else leaves(draw, names, first=index == 0)
            for index, inner in enumerate(nested)
        ),
        names.time(float(draw(st.integers(2, 4)))),
        names.time(float(draw(st.integers(1, 2)))) if draw(st.booleans()) else None,
        draw(st.sampled_from(partials)),
    )


@st.composite
def trees(draw: st.DrawFn, *, ties: bool, restart: bool) -> Sup:
    """A supervisor with children, at most three levels deep."""
    return supervisors(draw, _Names(ties=ties), 2, restart=restart)


# -- making the agents


@attrs.define(eq=False)
class Log:
    """What the children of one run did."""

    asked: list[str] = attrs.Factory(list)
    tools: list[tuple[str, int]] = attrs.Factory(list)
    """Who ran a tool, and how many chunks had been written before."""

    calls: int = 0


def script(leaf: Leaf, log: Log) -> list[Act]:
    def begin(turn: Turn) -> None:
        log.asked.append(leaf.name)

    async def call(turn: Turn) -> None:
        log.calls += 1
        turn.commit()
        await turn.run_tools([ToolCall(f"call {log.calls}", "mark", f'{{"who": "{leaf.name}"}}')])

    acts: list[Act] = [begin]
    said = 0
    for wait, effect in leaf.acts:
        acts += [wait] if wait else []
        if effect == "say":
            acts.append(f"{leaf.name}{said} ")
            said += 1
        else:
            acts.append(call)
    acts += [leaf.wait] if leaf.wait and leaf.end not in SILENT else []
    return [*acts, *_end(leaf.end)]


def _end(end: End) -> list[Act]:
    match end:
        case "fail":
            return [down()]
        case "filter":
            return [down("content_filter")]
        case "bug":
            return [ValueError("bug")]
        case "hang":
            return [_hang]
        case "linger":
            return [_linger]
        case "swallow":
            return [_swallow]
        case _:
            return []


async def _hang(turn: Turn) -> None:
    await anyio.sleep_forever()


async def _linger(turn: Turn) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)


async def _swallow(turn: Turn) -> None:
    """Go on after the cancellation, and try everything: none of it may have an effect."""
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        pass
    with anyio.CancelScope(shield=True):
        await anyio.sleep(1)
        await turn.write("ghost ")
        turn.commit()
        turn.skip_answer()
        turn.end_call()
        turn.cancel_prompt()


def factory(node: Node, log: Log) -> Callable[[], Agent]:
    """What makes the child that ``node`` describes."""

    def make() -> Agent:
        if isinstance(node, Sup):
            return supervisor(node, log)
        if node.end == "factory":
            raise OSError("no such child")
        return ScriptedAgent(script(node, log), system_prompt="prompt")

    return make


def supervisor(sup: Sup, log: Log, **options: Any) -> FallbackAgent:
    return FallbackAgent(
        [factory(child, log) for child in sup.children],
        names=[child.name for child in sup.children],
        first_chunk_timeout=sup.timeout,
        hedge_after=sup.hedge,
        after_partial=sup.partial,
        **options,
    )


@attrs.define(eq=False)
class TreeHost:
    """A host with a supervisor of scripts, for ``run_scenario``; it asks for ``turns`` answers."""

    tree: Sup
    turns: int = 1
    log: Log = attrs.Factory(Log)
    agent: FallbackAgent | None = None

    async def __call__(self, probe: Probe) -> None:
        log = self.log = Log()

        def mark(arguments: dict[str, Any]) -> str:
            log.tools.append((arguments["who"], len(probe.trace.answers[-1].written)))
            return "marked"

        schema = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}
        tools = [Tool.from_schema("mark", "Mark.", {**schema, "additionalProperties": False}, mark)]
        async with supervisor(self.tree, log, tools=tools, raise_on_failure=False) as agent:
            self.agent = agent
            probe.watch(agent)
            for number in range(self.turns):
                if agent._core.state != "open":
                    return
                agent.add_user_message(f"Question {number}")
                await read(probe, agent.answer())


# -- the model


@attrs.define
class Course:
    """What a node does, when nobody disturbs it: effects with their times, and its end."""

    steps: list[tuple[float, str, Any]] = attrs.Factory(list)
    """``(time, "say" | "tool" | "switch" | "ok" | "fail", what)``."""

    asks: list[tuple[float, str]] = attrs.Factory(list)

    def first(self) -> float:
        """When it has its first effect, or its end."""
        return next((time for time, kind, _ in self.steps if kind != "switch"), math.inf)

    def fails_at_first(self) -> bool:
        return next((kind for _, kind, _ in self.steps if kind != "switch"), "") == "fail"


@attrs.define
class Said:
    """What the answer has said so far."""

    begun: bool = False
    """There was an effect, if only a tool: nobody is asked beside another any more."""
    open: bool = False
    """There is text that is not stored yet: what a next child would continue."""


def course(node: Node, at: float, said: Said, *, root: bool = False) -> Course:
    """What ``node`` does when it is started at ``at``."""
    if isinstance(node, Sup):
        return _Play(node, said, root=root).run(at)
    made = Course(asks=[(at, node.name)])
    count = 0
    for wait, effect in node.acts:
        at += wait
        made.steps.append((at, effect, (node.name, f"{node.name}{count} ")))
        count += effect == "say"
    kinds = {"ok": "ok", "fail": "fail", "bug": "fail", "filter": "fail"}
    if node.end in kinds:
        made.steps.append((at + node.wait, kinds[node.end], node.end))
    return made


class _Play:
    """One supervisor's course, computed from those of its children."""

    def __init__(self, sup: Sup, said: Said, *, root: bool) -> None:
        self.sup = sup
        self.said = attrs.evolve(said)
        self.root = root
        self.made = Course()
        self.order = list(sup.children)
        self.face = self.order[0]
        self.live: list[tuple[Node, Course, float]] = []
        self.pending: list[tuple[float, str, Any]] = []
        self.claimed = False
        self.restart = False
        self.hedge_at = math.inf

    def run(self, at: float) -> Course:
        self.go_on(at)
        while not self.over():
            times = [min(made.first(), limit) for _, made, limit in self.live]
            now = min([*times, self.hedge_at])
            if now == self.hedge_at:
                self.hedge(now)
                continue
            index = times.index(now)
            child, made, limit = self.live[index]
            if limit < made.first() or made.fails_at_first():
                self.lose(index, now)
                self.go_on(now)
            else:
                self.win(child, made, now)
        return self.made

    def over(self) -> bool:
        return bool(self.made.steps) and self.made.steps[-1][1] in {"ok", "fail"}

    def lose(self, index: int, now: float) -> None:
        _, made, _ = self.live.pop(index)
        self.made.asks += [ask for ask in made.asks if ask[0] <= now]

    def go_on(self, now: float) -> None:
        if self.live:
            self.announce(self.live[0][0], now)
            return
        while self.order:
            if self.start(self.order.pop(0), now):
                return
        self.made.steps.append((now, "fail", "all"))

    def hedge(self, now: float) -> None:
        self.hedge_at = math.inf
        while self.order:
            if self.start(self.order.pop(0), now):
                return

    def start(self, child: Node, now: float) -> bool:
        if isinstance(child, Leaf) and child.end == "factory":
            return False
        if not self.live:
            self.announce(child, now)
        self.live.append((child, course(child, now, self.said), now + self.sup.timeout))
        armed = self.sup.hedge is not None and self.order and not (self.claimed or self.said.begun)
        self.hedge_at = now + (self.sup.hedge or 0.0) if armed else math.inf
        return True

    def announce(self, child: Node, now: float) -> None:
        if child is self.face:
            return
        switch = (now, "switch", (self.face.name, child.name, self.restart))
        (self.made.steps if self.root or self.claimed else self.pending).append(switch)
        self.face = child

    def win(self, child: Node, made: Course, now: float) -> None:
        """``child`` has claimed the answer: all that it does counts, up to its end."""
        for index in reversed(range(len(self.live))):
            if self.live[index][0] is not child:
                self.lose(index, now)
        self.live.clear()
        self.hedge_at = math.inf
        self.claimed = True
        self.announce_win(child, now)
        if self.restart:
            self.restart = self.said.open = False
        *effects, (ended, end, how) = made.steps
        self.made.steps += effects
        self.made.asks += made.asks
        tools_of: set[str] = set()
        speaker = ""
        for _, kind, what in effects:
            if kind in EFFECTS:
                speaker = what[0]
                self.said.open = kind == "say"
                self.said.begun = True
                tools_of |= {speaker} if kind == "tool" else set()
        if end == "ok":
            self.made.steps.append((ended, end, how))
            return
        if self.is_final(how, speaker in tools_of):
            self.made.steps.append((ended, end, f"final {how}"))
            return
        self.restart = self.sup.partial == "restart" and self.said.open
        self.go_on(ended)

    def announce_win(self, child: Node, now: float) -> None:
        self.made.steps += self.pending
        self.pending = []
        self.announce(child, now)

    def is_final(self, how: str, ran_tool: bool) -> bool:
        if not self.said.open:
            return False
        if self.sup.partial == "stop" or how.endswith("filter"):
            return True
        return self.sup.partial == "continue" and ran_tool
