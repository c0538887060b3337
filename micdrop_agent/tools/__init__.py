"""Tools that the model may call: made of functions, classes or JSON Schema."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.tools._context import Deps
from micdrop_agent.tools._control import control_tools
from micdrop_agent.tools._decorator import FunctionTool, tool
from micdrop_agent.tools._set import ToolSet
from micdrop_agent.tools._tool import (
    BoundCall,
    OnCancel,
    Tool,
    ToolKind,
    ToolOptions,
)

if TYPE_CHECKING:
    from micdrop_agent.tools._json import dump_output
    from micdrop_agent.tools._mcp import tools_from_mcp
    from micdrop_agent.tools._output import show_output
    from micdrop_agent.tools._typed import TypedValue

__all__ = [
    "BoundCall",
    "Deps",
    "FunctionTool",
    "OnCancel",
    "Tool",
    "ToolKind",
    "ToolOptions",
    "ToolSet",
    "TypedValue",
    "control_tools",
    "dump_output",
    "show_output",
    "tool",
    "tools_from_mcp",
]


_LATE: Final = {
    "tools_from_mcp": "micdrop_agent.tools._mcp",
    "TypedValue": "micdrop_agent.tools._typed",
    "dump_output": "micdrop_agent.tools._json",
    "show_output": "micdrop_agent.tools._output",
}


def __getattr__(name: str) -> Any:
    """Load what needs JSON, dates and dataclasses when the first tool runs (PEP 562)."""
    module = _LATE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
