"""``show --as-test``: a stored call as a test that anybody can run, and change.

items of the call ──▶ turns ──▶ the replies of a scripted server, the outputs of the tools, and what must come of it
"""

from __future__ import annotations

import json
import keyword
import re
import unicodedata
from pprint import pformat
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from micdrop_agent.messages import Message, ToolCall, ToolResult
from micdrop_agent.pairs import pair_calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from micdrop_agent.messages import Item

__all__ = ["as_test"]

INTERRUPTED_AFTER_S: Final = 0.5
"""Virtual seconds after which the test barges in, where the stored call was interrupted."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What a tool may be called; a call of anything else is answered by the library."""

_HELD_BACK: Final = re.compile(r"[<\[`{][^>\]`}]*$")
"""What may be the beginning of a tag: of a text that breaks off there, an agent may not have said it yet."""

_CUT: Final = '{"error":"cancelled"}'

_FILE: Final = '''\
"""The call {call}, as it was stored: what the caller said, what the model said, and which tools it called.

The model's server and the tools are scripts; all else is real. Put an agent of your own into make_agent() to see
what it makes of the same call.
"""

from __future__ import annotations

from typing import Any

import pytest

from micdrop_agent import Agent, ChatAgent
from micdrop_agent.testing import BACKENDS, Backend, ScriptedProvider, parts, run_virtual, scripted_tools, talk

SYSTEM_PROMPT = {prompt}

# What the model's server sends, one list for each request. {silent}
REPLIES: list[list[dict[str, Any]]] = {replies}

# What each tool returns, call by call, as JSON; None: it never does.
OUTPUTS: dict[str, list[str | None]] = {outputs}


def make_agent(server: ScriptedProvider) -> Agent:
    return ChatAgent(
        model="recorded",
        api_key="none",
        base_url=server.base_url,
        connect=server.connect,
        system_prompt=SYSTEM_PROMPT,
        tools=scripted_tools(OUTPUTS),
        think=False,  # what was stored has gone through the filters already
        run_written_calls=False,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_call(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([parts(reply) for reply in REPLIES]) as server, make_agent(server) as agent:
{steps}

    run_virtual(backend, scenario)
'''


def as_test(call: str, items: Sequence[Item]) -> str:
    """The source of a test that has the call ``call`` again."""
    prompt = ""
    if items and isinstance(items[0], Message) and items[0].role == "system":
        prompt, items = items[0].content, items[1:]
    script = _Script()
    for turn in _turns(items):
        script.add(turn)
    steps = script.steps or ["assert len(agent.conversation) == 1"]
    return _FILE.format(
        call=_in_docstring(call),
        prompt=repr(prompt),
        silent="Where one was interrupted, it falls silent.",
        replies=pformat(script.replies, width=100, sort_dicts=False),
        outputs=pformat(script.outputs, width=100, sort_dicts=False),
        steps="\n".join(" " * 12 + step for step in steps),
    )


@attrs.define(eq=False)
class _Turn:
    """What the caller said, and what came of it."""

    prompt: Message | None
    items: list[Item] = attrs.field(factory=list["Item"])


def _turns(items: Sequence[Item]) -> Iterator[_Turn]:
    turn: _Turn | None = None
    for item in items:
        if isinstance(item, Message) and item.role != "assistant":
            if turn is not None:
                yield turn
            turn = _Turn(item)
        else:
            turn = turn or _Turn(None)
            turn.items.append(item)
    if turn is not None:
        yield turn


class _Script:
    """The replies, the outputs and the lines of the test."""

    def __init__(self) -> None:
        self.replies: list[list[dict[str, Any]]] = []
        self.outputs: dict[str, list[str | None]] = {}
        self.steps: list[str] = []

    def add(self, turn: _Turn) -> None:
        """Add one turn."""
        prompt = turn.prompt
        if not _asks(turn):
            # Nobody answered, or nobody asked: it was put there.
            self._put([*([] if prompt is None else [prompt]), *turn.items])
            return
        # The caller's words for a turn that was taken back (noise, half a sentence) are no longer there.
        said = "(noise)" if prompt is None else prompt.content
        items, begin = turn.items, _given_up(turn.items)
        if begin:
            # A text that broke off, and another after it: an agent had failed, and the next one began again.
            self._put([*([] if prompt is None else [prompt]), *items[: begin - 1]])
            self.steps.append("# Another agent took over here.")
            self._put(items[begin - 1 : begin])
            said, items = "(go on)", items[begin:]
        cut = self._reply(items)
        option = f", interrupt_after={INTERRUPTED_AFTER_S}" if cut else ""
        self.steps.append(f"record = await talk(agent, {said!r}{option})")
        self.steps += [f"record.{expected}" for expected in _expected(items, cut=cut)]

    def _put(self, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Message):
                self.steps.append(f"agent.add_message({item.role!r}, {item.content!r})")

    def _reply(self, items: Sequence[Item]) -> bool:
        """Script the requests of one turn; whether it was interrupted."""
        reply: list[dict[str, Any]] = []
        called = False
        results = pair_calls(items)
        for at, item in enumerate(items):
            if isinstance(item, ToolResult):
                continue
            if called:
                self.replies.append(reply)
                reply, called = [], False
            if isinstance(item, ToolCall):
                reply.append({"tool": item.tool_name, "arguments": item.parameters, "id": item.tool_call_id})
                result = items[results[at]] if at in results else None
                self._output(item, result.output if isinstance(result, ToolResult) else _CUT)
                called = True
            else:
                reply.append({"text": [_spoken(item)]})
        cut = called or _is_cut(items[-1])
        if cut and not called:
            # What may begin a tag, or the name of a tool, is held back until something else follows.
            reply += [{"text": [" …"]}, {"silence": True}]
        self.replies.append(reply)
        if called and not _is_cut(items[-1]):
            self.replies.append([{"silence": True}])  # whatever ended the turn: the model said nothing more
        return cut

    def _output(self, call: ToolCall, output: str) -> None:
        """What the tool of ``call`` returned, unless the library answered in its place."""
        # There has to be some tool: an agent that has none takes no calls at all.
        known = self.outputs.setdefault(call.tool_name if _NAME.fullmatch(call.tool_name) else "another_tool", [])
        if _NAME.fullmatch(call.tool_name) and _arguments(call) is not None:
            known.append(None if _is_error(output, "cancelled") else output)


def _asks(turn: _Turn) -> bool:
    """Whether the items of ``turn`` are an answer."""
    if turn.prompt is None:  # a greeting, or the tools of a turn whose words were taken back
        return any(isinstance(item, ToolCall) for item in turn.items)
    return bool(turn.items) and turn.prompt.role == "user"


def _given_up(items: Sequence[Item]) -> int:
    """How many items stand before a new beginning, after a text that broke off; 0 if there is none."""
    marks = [at for at, item in enumerate(items[:-1], 1) if isinstance(item, Message) and _is_cut(item)]
    return marks[-1] if marks else 0


def _is_cut(item: Item) -> bool:
    """Whether the answer was interrupted here."""
    if isinstance(item, Message):
        return bool((item.metadata or {}).get("interrupted"))
    return isinstance(item, ToolCall) or _is_error(item.output, "cancelled")


def _spoken(message: Message) -> str:
    """The text, without what no server can send: half of a character."""
    return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", message.content)


def _is_error(output: str, text: str) -> bool:
    try:
        return bool(json.loads(output) == {"error": text})
    except ValueError:
        return False


def _arguments(call: ToolCall) -> dict[str, Any] | None:
    """The arguments of ``call``; ``None`` where they cannot be used."""
    try:
        found = json.loads(call.parameters or "{}")
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _expected(items: Sequence[Item], *, cut: bool) -> Iterator[str]:
    for item in items:
        if isinstance(item, Message):
            said = _HELD_BACK.sub("", _spoken(item)) if _is_cut(item) else _spoken(item)
            if said.strip():
                yield f"said({said!r})"
        elif isinstance(item, ToolCall):
            found = _arguments(item) or {}
            named = [f"{name}={value!r}" for name, value in found.items() if _is_keyword(name)]
            others = {name: value for name, value in found.items() if not _is_keyword(name)}
            if others:
                named.append(f"**{others!r}")
            yield f"called({', '.join([repr(item.tool_name), *named])})"
    if not any(isinstance(item, ToolCall) for item in items):
        yield "called_nothing()"
    if not cut:
        yield 'ended("completed")'


def _is_keyword(name: str) -> bool:
    # Python reads an identifier in its compatible form, in which "º" is "o".
    same = unicodedata.normalize("NFKC", name) == name
    return same and name.isidentifier() and not keyword.iskeyword(name)


def _in_docstring(text: str) -> str:
    return repr(text)[1:-1].replace('"', "'")
