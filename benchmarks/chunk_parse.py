"""CPU time to read a chunk of a Chat Completions stream: by the template of its twins, and by parsing it.

    python benchmarks/chunk_parse.py

``compact`` chunks are written as OpenAI writes them, ``spaced`` ones as ``json.dumps`` does. One JSON line with
nanoseconds per chunk; ``gain`` is how many times the parser's time the template takes. Goal: at most 0.6.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Final

from micdrop_agent.providers.responses.chat_stream import ChatTranslator
from micdrop_agent.providers.responses.fastpath import TextTemplate
from micdrop_agent.providers.responses.http_stream import BodyReader

CHUNKS: Final = 2_000
ROUNDS: Final = 15
GOAL: Final = 0.6


def body(**form: Any) -> list[bytes]:
    """A stream of one-word chunks, each a read of its own."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini"}
    deltas = ({"index": 0, "delta": {"content": f" word{at}"}, "finish_reason": None} for at in range(CHUNKS))
    return [b"data: " + json.dumps({**head, "choices": [delta]}, **form).encode() + b"\n\n" for delta in deltas]


def cost(data: list[bytes]) -> float:
    """Nanoseconds of CPU time per chunk, the best of all rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        reader = BodyReader(ChatTranslator("p"))
        began = time.process_time_ns()
        for piece in data:
            reader.feed(piece)
        best = min(best, time.process_time_ns() - began)
    return best / CHUNKS


def main() -> int:
    """Measure, print one line, and judge."""
    bodies = {"compact": body(separators=(",", ":")), "spaced": body()}
    found = {f"template_{name}": cost(data) for name, data in bodies.items()}
    TextTemplate.match = lambda _self, _event: None  # type: ignore[method-assign]  # from now on nothing has a twin
    found |= {f"parsed_{name}": cost(data) for name, data in bodies.items()}
    gains = {name: found[f"template_{name}"] / found[f"parsed_{name}"] for name in bodies}
    figures = {name: round(value) for name, value in found.items()}
    print(json.dumps({**figures, **{f"gain_{name}": round(value, 2) for name, value in gains.items()}}))
    return int(max(gains.values()) > GOAL)


if __name__ == "__main__":
    sys.exit(main())
