"""Tools that the model may call: made of functions, classes or JSON Schema."""

from __future__ import annotations

from micdrop_agent.tools._control import control_tools
from micdrop_agent.tools._decorator import FunctionTool, tool
from micdrop_agent.tools._json import dump_output
from micdrop_agent.tools._set import ToolSet
from micdrop_agent.tools._tool import (
    BoundCall,
    OnCancel,
    Tool,
    ToolKind,
    ToolOptions,
)

__all__ = [
    "BoundCall",
    "FunctionTool",
    "OnCancel",
    "Tool",
    "ToolKind",
    "ToolOptions",
    "ToolSet",
    "control_tools",
    "dump_output",
    "tool",
]
