"""The marks that models and chat templates put around what is not for the user, and what each means.

The spellings are those of the templates of the model families and of what their servers were seen to
let through. Small letters: marks are compared without regard to ASCII case.

``open`` and ``close`` stand around thoughts; ``header``, ``message``, ``constrain`` and ``end`` are the parts of
a channel; ``stop`` ends the turn; ``role`` is followed by whose turn begins; ``begin`` means nothing.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TEMPLATE_MARKS", "THOUGHT_MARKS"]

_NAMES: Final = ("think", "thinking", "thought", "thoughts", "reasoning", "reflection")
_PREFIXES: Final = ("", "seed:", "mm:", "antml:", "longcat_", "ds_")
THOUGHT_MARKS: Final[dict[str, str]] = {
    "◁think▷": "open",
    "◁/think▷": "close",
    "[think]": "open",
    "[/think]": "close",
    "<|begin_of_thought|>": "open",
    "<|end_of_thought|>": "close",
    "<|begin_of_solution|>": "begin",
    "<|end_of_solution|>": "begin",
    "<|start_thinking|>": "open",
    "<|end_thinking|>": "close",
    "<|start_response|>": "begin",
    "<|end_response|>": "begin",
    "<|channel>": "open",  # Gemma 4: <|channel>thought … <channel|>
    "<channel|>": "close",
    **{f"<{prefix}{name}>": "open" for prefix in _PREFIXES for name in _NAMES},
    **{f"</{prefix}{name}>": "close" for prefix in _PREFIXES for name in _NAMES},
    "<|channel|>": "header",
    "<|start|>": "header",
    "<|constrain|>": "constrain",
    "<|message|>": "message",
    "<|end|>": "end",
    "<|call|>": "end",
}
TEMPLATE_MARKS: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "</s>",
            "<eos>",
            "<|im_end|>",
            "<|eot_id|>",
            "<|eom_id|>",
            "<|eot|>",
            "<|eom|>",
            "<|return|>",
            "<|endoftext|>",
            "<|end_of_text|>",
            "<|end_of_turn|>",
            "<|end_of_turn_token|>",
            "<|end_of_sentence|>",
            "<\uff5cend\u2581of\u2581sentence\uff5c>",
            "<end_of_turn>",
            "<turn|>",
            "<|user|>",
            "<\uff5cuser\uff5c>",
            "<|observation|>",
            "<|role_end|>",
            "[inst]",
            "[eos]",
            "[e~[",
        ),
        "stop",
    ),
    **dict.fromkeys(
        (
            "<bos>",
            "<|begin_of_text|>",
            "<|startoftext|>",
            "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
            "<|end_header_id|>",
            "<|assistant|>",
            "<\uff5cassistant\uff5c>",
            "[/inst]",
        ),
        "begin",
    ),
    **dict.fromkeys(("<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "<|turn>"), "role"),
    "<s>": "html",
}
