"""Tools that the model may call: made of functions, classes or JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from micdrop_agent._late import late_names
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


# They need JSON, dates and dataclasses, which the first tool that runs loads.
__getattr__ = late_names(
    __name__,
    {
        "tools_from_mcp": "._mcp",
        "TypedValue": "._typed",
        "dump_output": "._json",
        "show_output": "._output",
    },
)
