"""An agent whose answers are scripts, for tests of hosts, tools, listeners and of the library itself."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import anyio
import attrs

from micdrop_agent._core.agent import Agent
from micdrop_agent.errors import ToolError
from micdrop_agent.messages import Message, ToolCall
from micdrop_agent.providers.json_text import as_dict
from micdrop_agent.tools import Tool

if TYPE_CHECKING:
    from typing import Unpack

    from micdrop_agent._core.options import AgentKeywords
    from micdrop_agent._core.turn import Turn


@attrs.frozen
class Call:
    """An act of a script: the model asks for a tool.

    Args:
        name: Name of the tool.
        arguments: Its arguments; a text is used as it is, valid JSON or not.
        call_id: Id of the call; unique ones are made up.
    """

    name: str
    arguments: Mapping[str, Any] | str = attrs.field(factory=dict[str, Any])
    call_id: str | None = None


@attrs.frozen
class _Hang:
    """An act of a script: nothing more happens until the answer is cancelled."""


HANG: Final = _Hang()
"""The act that never ends."""

Act: TypeAlias = "str | float | Call | Sequence[Call] | Message | BaseException | _Hang | Callable[[Turn], Any]"
"""One thing that an answer does: say a chunk, wait seconds, call a tool (or several at once), store a message,
raise, hang, or call a function of the turn, sync or async."""


def scripted_tools(outputs: Mapping[str, Sequence[str | None]]) -> list[Tool]:
    """Tools that take any arguments and return what they are told to, call by call; the last output again and again.

    Args:
        outputs: For each tool by name its outputs, as JSON texts; ``None``: that call never returns. An object with the
            member ``error`` is a failure of the tool.
    """
    return [_scripted_tool(name, list(listed)) for name, listed in outputs.items()]


def _scripted_tool(name: str, outputs: list[str | None]) -> Tool:
    calls = iter(range(len(outputs)))

    async def execute(_arguments: Mapping[str, Any]) -> Any:
        output = outputs[next(calls, -1)] if outputs else "null"
        if output is None:
            await anyio.sleep_forever()
            return None
        try:
            value = json.loads(output)
        except ValueError:
            return output
        error = as_dict(value).get("error")
        if isinstance(error, str) and len(value) == 1:
            raise ToolError(error)
        return value

    schema: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}
    return Tool.from_schema(name, f"Scripted: {name}.", schema, execute)


class ScriptedAgent(Agent):
    """Plays one script per answer, in order; the last one is played again and again.

        ScriptedAgent(["Hello ", 0.5, "you."], [Call("look"), "A cat."], [ProviderError("down", kind="server")])

    Args:
        *answers: For each answer its acts (see ``Act``).
        **options: The options of ``Agent``.

    Attributes:
        asked: How many answers were started.
    """

    def __init__(self, *answers: Sequence[Act], **options: Unpack[AgentKeywords]) -> None:
        super().__init__(**options)
        self._answers = answers
        self._calls = 0
        self.asked: int = 0

    async def generate_answer(self, turn: Turn) -> None:
        """Play the next script."""
        script = self._answers[min(self.asked, len(self._answers) - 1)] if self._answers else ()
        self.asked += 1
        for act in script:
            if await self._play(act, turn):
                return

    async def _play(self, act: Act, turn: Turn) -> bool:
        """Do one act; true if it ended the turn."""
        if isinstance(act, Call):
            return await self._run([act], turn)
        if isinstance(act, str):
            await turn.write(act)
        elif isinstance(act, int | float):
            await anyio.sleep(act)
        elif isinstance(act, Sequence):
            return await self._run(cast("Sequence[Call]", act), turn)
        else:
            await self._play_rare(act, turn)
        return False

    async def _play_rare(self, act: Message | BaseException | _Hang | Callable[[Turn], Any], turn: Turn) -> None:
        if isinstance(act, BaseException):
            # It may have been raised before: the frames of that time, which it keeps, are not its story now.
            raise act.with_traceback(None)
        if isinstance(act, Message):
            turn.add(act)
        elif isinstance(act, _Hang):
            await anyio.sleep_forever()
        else:
            result = act(turn)
            if inspect.isawaitable(result):
                await result

    async def _run(self, calls: Sequence[Call], turn: Turn) -> bool:
        turn.commit()
        outcome = await turn.run_tools([self._item(call) for call in calls])
        return outcome.skip

    def _item(self, call: Call) -> ToolCall:
        self._calls += 1
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments))
        return ToolCall(call.call_id or f"call_{self._calls}", call.name, arguments)
