"""Hypothesis strategies for conversations, chunkings and the scripts of answers.

Import this module by its name; it needs hypothesis, which the library itself does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from micdrop_agent.errors import ProviderError
from micdrop_agent.messages import Message, ToolCall, ToolResult
from micdrop_agent.testing._scripted import Call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.messages import Item
    from micdrop_agent.testing._scripted import Act

_WORDS = ("One ", "two, ", "three.", "Ça va 👍🏽 ", "日本 ", " ", "\n", "a", "…and a longer piece of an answer. ")


def chunks(*, min_size: int = 0, max_size: int = 6) -> st.SearchStrategy[list[str]]:
    """Non-empty chunks of text, some of them only white space."""
    return st.lists(st.sampled_from(_WORDS), min_size=min_size, max_size=max_size)


@st.composite
def chunkings(draw: st.DrawFn, text: str) -> list[str]:
    """One way to cut ``text`` into chunks; together they are the text."""
    edges = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *edges], [*edges, len(text)], strict=True)]
    return [piece for piece in pieces if piece]


def delays() -> st.SearchStrategy[float]:
    """Seconds that an answer or a tool may take; some are equal, so that things happen at once."""
    return st.sampled_from((0.0, 0.01, 0.05, 0.1, 0.1, 1.0))


def calls(tools: Sequence[str]) -> st.SearchStrategy[Call]:
    """A call of one of ``tools``, now and then with arguments that are wrong."""
    arguments = st.sampled_from(({}, {}, {}, "", "{", {"surplus": 1}))
    return st.builds(Call, st.sampled_from(tuple(tools)), arguments)


def answers(tools: Sequence[str] = (), *, failures: bool = True, max_size: int = 6) -> st.SearchStrategy[list[Act]]:
    """The script of one answer, for ``ScriptedAgent``.

    Args:
        tools: Names of the tools that may be called.
        failures: Whether an answer may fail, at its end.
        max_size: Most acts before that.
    """
    acts: list[st.SearchStrategy[Any]] = [st.sampled_from(_WORDS), st.sampled_from(_WORDS), delays()]
    if tools:
        acts += [calls(tools), st.lists(calls(tools), min_size=2, max_size=3)]
    body = st.lists(st.one_of(acts), max_size=max_size)
    if not failures:
        return body
    return st.builds(_with_end, body, st.integers(0, 3))


def _with_end(script: list[Act], chance: int) -> list[Act]:
    """One script in four ends in a failure."""
    return script if chance < 3 else [*script, ProviderError("the script says so", kind="server")]  # noqa: PLR2004


@st.composite
def conversations(draw: st.DrawFn, *, max_size: int = 8) -> list[Item]:
    """A whole conversation: a system prompt, then messages and complete tool pairs."""
    items: list[Item] = [Message("system", draw(st.sampled_from(("", "You are the desk."))))]
    for number in range(draw(st.integers(0, max_size))):
        kind: Any = draw(st.sampled_from(("user", "assistant", "system", "pair")))
        if kind == "pair":
            items.append(ToolCall(f"call_{number}", "look", '{"n":1}'))
            items.append(ToolResult(f"call_{number}", "look", "1"))
        else:
            text = "".join(draw(chunks(min_size=1))).strip() or "x"
            items.append(Message(kind, text, draw(st.sampled_from((None, {"interrupted": True})))))
    return items
