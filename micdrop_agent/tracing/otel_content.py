"""What was said, as the GenAI conventions want it: JSON texts of messages with parts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from micdrop_agent.messages import Message, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from micdrop_agent.messages import Item
    from micdrop_agent.result import AnswerResult

__all__ = ["input_messages", "output_messages", "system_instructions", "tool_texts"]


def system_instructions(items: Iterable[Item]) -> str:
    """``gen_ai.system_instructions``."""
    return _dumps(
        [_text(item.content) for item in items if isinstance(item, Message) and item.role == "system" and item.content]
    )


def input_messages(items: Iterable[Item], prompt: Message | None) -> str:
    """``gen_ai.input.messages``: the conversation up to what was answered."""
    asked: list[Item] = []
    for item in items:
        if not (isinstance(item, Message) and item.role == "system"):
            asked.append(item)
        if item is prompt:
            break
    return _dumps([_message(item) for item in asked])


def output_messages(result: AnswerResult) -> str:
    """``gen_ai.output.messages``: what was answered."""
    finish = "error" if result.status == "failed" else result.finish_reason or "stop"
    return _dumps([{"role": "assistant", "parts": [_text(result.text)], "finish_reason": finish}])


def tool_texts(items: Iterable[Item], call_id: object) -> dict[str, str]:
    """Arguments and result of the last call of that id."""
    texts: dict[str, str] = {}
    for item in items:
        if isinstance(item, ToolCall) and item.tool_call_id == call_id:
            texts = {"gen_ai.tool.call.arguments": item.parameters}
        elif isinstance(item, ToolResult) and item.tool_call_id == call_id:
            texts["gen_ai.tool.call.result"] = item.output
    return texts


def _message(item: Item) -> dict[str, Any]:
    if isinstance(item, Message):
        return {"role": item.role, "parts": [_text(item.content)]}
    if isinstance(item, ToolCall):
        part = {"type": "tool_call", "id": item.tool_call_id, "name": item.tool_name}
        return {"role": "assistant", "parts": [{**part, "arguments": _decoded(item.parameters)}]}
    part = {"type": "tool_call_response", "id": item.tool_call_id}
    return {"role": "tool", "parts": [{**part, "response": _decoded(item.output)}]}


def _text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text  # as the model wrote it


def _dumps(value: Any) -> str:
    # An exporter encodes as UTF-8, which half a surrogate pair would break: so ASCII only.
    return json.dumps(value)
