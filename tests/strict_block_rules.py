"""Why Claude and Gemini would answer 400, from their documentation; pure, and nothing of the library is used."""

from __future__ import annotations

import re
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CLAUDE_ID = re.compile(r"[a-zA-Z0-9_-]+")
BLOCKS = {
    "text": ("type", "text"),
    "image": ("type", "source"),
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
    "tool_use": ("type", "id", "name", "input"),
    "tool_result": ("type", "tool_use_id", "content", "is_error"),
}


def _turns(where: str, roles: list[str], assistant: str) -> list[str]:
    bad = [f"{where}: it begins with {roles[:1]}"] if roles[:1] != ["user"] else []
    bad += [f"{where}: it ends with {roles[-1:]}"] if roles[-1:] != ["user"] else []
    wanted = ["user", assistant] * (len(roles) // 2 + 1)
    return bad + ([] if roles == wanted[: len(roles)] else [f"{where}: {roles} do not alternate"])


def claude(body: dict[str, Any]) -> list[str]:  # noqa: C901 - one branch for each kind of block
    """Why Anthropic's Messages API, or Bedrock behind it, would answer 400."""
    bad = [] if body.get("stream") is True else ["stream is not on"]
    if not isinstance(body.get("max_tokens"), int):
        bad.append("no max_tokens")
    if "system" in body and not body["system"].strip():
        bad.append("system is blank")
    bad += _turns("messages", [message["role"] for message in body["messages"]], "assistant")
    seen: set[str] = set()
    waiting: list[str] = []
    for number, message in enumerate(body["messages"]):
        where = f"messages[{number}]"
        bad += _members(where, message, "role", "content")
        answered: list[str] = []
        words = False
        for block in message["content"]:
            kind = block["type"]
            bad += _members(f"{where} {kind}", block, *BLOCKS.get(kind, ()))
            if kind == "text":
                words = True
                bad += [] if block["text"].strip() else [f"{where}: blank text"]
            elif kind == "tool_result":
                answered.append(block["tool_use_id"])
                bad += [f"{where}: a result after words"] if words else []
                bad += [] if isinstance(block["content"], str) else [f"{where}: content is no text"]
            elif kind == "tool_use":
                bad += [] if isinstance(block["input"], dict) else [f"{where}: input is no object"]
                bad += (
                    [] if CLAUDE_ID.fullmatch(block["id"]) and block["id"] not in seen else [f"{where}: {block['id']}"]
                )
                bad += [] if NAME.fullmatch(block["name"]) else [f"{where}: name {block['name']}"]
            right = "user" if kind in {"tool_result", "image"} else "assistant" if kind != "text" else message["role"]
            bad += [] if message["role"] == right else [f"{where}: {kind} of the {message['role']}"]
        if message["role"] == "user" and sorted(answered) != sorted(waiting):
            bad.append(f"{where}: results {answered} of calls {waiting}")
        waiting = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        seen.update(waiting)
    tools, choice = body.get("tools", []), body.get("tool_choice")
    bad += ["calls in the history, and no tools"] if seen and not tools else []
    bad += ["tool_choice without tools"] if choice is not None and not tools else []
    bad += [f"tool {tool}" for tool in tools if tool.get("input_schema", {}).get("type") != "object"]
    return bad


def gemini(body: dict[str, Any]) -> list[str]:
    """Why Gemini would answer 400."""
    bad = [] if body.get("contents") else ["contents is empty"]
    bad += _members("body", body, "contents", "systemInstruction", "tools", "toolConfig", "generationConfig")
    bad += _turns("contents", [content["role"] for content in body["contents"]], "model")
    waiting: list[str] = []
    called = False
    for number, content in enumerate(body["contents"]):
        where = f"contents[{number}]"
        bad += _members(where, content, "role", "parts")
        answered = [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]
        if content["role"] == "user" and answered != waiting:
            bad.append(f"{where}: results {answered} of calls {waiting}")
        for part in content["parts"]:
            data = set(part) - {"thoughtSignature"}
            if len(data) != 1 or not data <= {"text", "functionCall", "functionResponse", "inlineData", "fileData"}:
                bad.append(f"{where}: a part of {sorted(data)}")
            if "text" in part and not part["text"].strip():
                bad.append(f"{where}: blank text")
            if "functionResponse" in part and not isinstance(part["functionResponse"]["response"], dict):
                bad.append(f"{where}: response is no object")
            if "functionCall" in part and not isinstance(part["functionCall"]["args"], dict):
                bad.append(f"{where}: args is no object")
        waiting = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]
        called = called or bool(waiting)
    declared = [one for tool in body.get("tools", []) for one in tool.get("functionDeclarations", ())]
    bad += ["calls in the history, and no declarations"] if called and not declared else []
    bad += ["toolConfig without declarations"] if "toolConfig" in body and not declared else []
    return bad


def _members(where: str, message: dict[str, Any], *allowed: str) -> list[str]:
    surplus = set(message) - set(allowed)
    return [f"{where}: unknown members {sorted(surplus)}"] if surplus else []


RULES = {"claude": claude, "gemini": gemini}
