"""What the tests of ``FallbackAgent`` share: a supervisor of scripts, and one recorded answer of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio
import attrs

from micdrop_agent.errors import ProviderError
from micdrop_agent.events import EVENT_TYPES, AgentSwitched
from micdrop_agent.fallback import FallbackAgent
from micdrop_agent.messages import Message, ToolCall, ToolResult
from micdrop_agent.testing import Act, ScriptedAgent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.answer import Answer
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.events import Event
    from micdrop_agent.result import AnswerResult

logging.getLogger("micdrop_agent").addHandler(logging.NullHandler())

Script: TypeAlias = "Sequence[Act]"


def down(kind: Any = "server", **facts: Any) -> ProviderError:
    """An error of a provider."""
    return ProviderError(f"scripted: {kind}", kind=kind, **facts)


class Cast:
    """Children that are made on demand, and everything that was ever made."""

    def __init__(self, *scripts: Script | Callable[[], Agent]) -> None:
        self.made: list[list[Agent]] = [[] for _ in scripts]
        self.factories: list[Callable[[], Agent]] = [
            self._factory(index, script) for index, script in enumerate(scripts)
        ]

    def _factory(self, index: int, script: Any) -> Callable[[], Agent]:
        def make() -> Agent:
            made: Any = script() if callable(script) else ScriptedAgent(script, system_prompt=f"prompt {index}")
            self.made[index].append(made)
            return cast("Agent", made)

        return make

    def asked(self) -> list[int]:
        """How many answers each child (all its makes together) was asked for."""
        return [sum(cast("ScriptedAgent", child).asked for child in made) for made in self.made]

    def agent(self, **options: Any) -> FallbackAgent:
        """A supervisor of these children, named a, b, c and so on."""
        options.setdefault("names", [chr(ord("a") + index) for index in range(len(self.factories))])
        return FallbackAgent(self.factories, **options)


class Series(ScriptedAgent):
    """Plays the next of ``scripts``, which all its makes share; the last one again and again."""

    def __init__(self, scripts: list[Script], **options: Any) -> None:
        super().__init__(**options)
        self._scripts = scripts

    async def generate_answer(self, turn: Turn) -> None:
        """Play the next script."""
        self._answers = (self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0],)
        await super().generate_answer(turn)


def series(*scripts: Script) -> Callable[[], Agent]:
    """A factory of children that go through ``scripts`` together."""
    left = list(scripts)
    return lambda: Series(left)


@attrs.define(eq=False)
class Heard:
    """What a consumer and a listener learned of one answer."""

    chunks: list[str] = attrs.field(factory=list[str])
    error: Exception | None = None
    events: list[Event] = attrs.field(factory=list)
    ended_at: float = -1.0
    answer: Answer | None = None

    @property
    def text(self) -> str:
        return "".join(self.chunks)

    @property
    def result(self) -> AnswerResult:
        assert self.answer is not None
        return self.answer.result

    @property
    def switches(self) -> list[tuple[str, str, bool]]:
        return [(event.from_, event.to, event.restarted) for event in self.events if isinstance(event, AgentSwitched)]

    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


async def listen(agent: Agent, heard: Heard | None = None, *, say: str | None = "Hello?") -> Heard:
    """Ask ``agent`` for one answer and record everything of it."""
    heard = Heard() if heard is None else heard
    removers = [agent.on(kind, heard.events.append) for kind in EVENT_TYPES]
    if say is not None:
        agent.add_user_message(say)
    heard.answer = agent.answer()
    try:
        async for chunk in heard.answer:
            heard.chunks.append(chunk)
    except Exception as error:  # noqa: BLE001 - recorded: the tests look at it
        heard.error = error
    heard.ended_at = anyio.current_time()
    for remove in removers:
        remove()
    return heard


def stored(agent: Agent) -> list[str]:
    """The conversation after the system prompt, one short text per item."""
    return [short(item) for item in agent.conversation if getattr(item, "role", "") != "system"]


def short(item: object) -> str:
    match item:
        case Message(role=role, content=content, metadata=metadata):
            mark = "!" if metadata and metadata.get("interrupted") else ""
            return f"{role[0]}{mark}:{content}"
        case ToolCall():
            return f"call:{item.tool_name}"
        case ToolResult():
            return f"result:{item.output}"
        case _:
            raise AssertionError(item)
