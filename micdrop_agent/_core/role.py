"""Which role an agent plays: its system prompt and its tools, which may change while the conversation stays.

agent.system_prompt = …   between answers
agent.hand_off(…)         at any time: what is asked next, in a running answer too, is asked in the new role
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from micdrop_agent.events import RoleChanged
from micdrop_agent.messages import Message, is_blank
from micdrop_agent.options import check_text
from micdrop_agent.tools import ToolSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from micdrop_agent._core.core import Core
    from micdrop_agent.tools import Tool

__all__ = ["hand_off", "set_prompt"]


def set_prompt(core: Core, text: str) -> None:
    """Exchange the system prompt, where no answer depends on it."""
    root = core.root()
    root.check_thread("system_prompt")
    check_text("system_prompt", text)
    if root.answering:
        raise RuntimeError("the system prompt cannot be exchanged while an answer runs; use hand_off()")
    _change(root, text, None)


def hand_off(
    core: Core,
    *,
    system_prompt: str | None,
    tools: Iterable[Tool | Callable[..., Any]] | None,
    note: str | None,
) -> None:
    """See ``Agent.hand_off``."""
    root = core.root()
    root.check_thread("hand_off()")
    for name, value in (("system_prompt", system_prompt), ("note", note)):
        if value is not None:
            check_text(name, value)
    # What cannot be a tool is refused before anything is changed.
    _change(root, system_prompt, None if tools is None else tuple(ToolSet(tools)))
    if note is not None and not is_blank(note):
        root.add(Message("system", note))


def _change(root: Core, text: str | None, tools: tuple[Tool, ...] | None) -> None:
    """Take on the new role and report it, in one step."""
    old = root.system_message()
    if text is not None:
        root.use_system(Message("system", text))
        root.show_system(root.conversation)
    if tools is not None:
        for tool in root.listed_tools():
            root.remove_tool(tool.name)
        for tool in tools:
            root.add_tool(tool)
    if not root.hub.unheard:
        names = tuple(tool.name for tool in root.listed_tools())
        root.hub.emit(RoleChanged(old, root.system_message(), names))
