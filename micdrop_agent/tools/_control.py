"""The three tools by which the model steers the call itself.

They do nothing when they run: the agent recognises them by ``kind`` and acts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from micdrop_agent.tools._tool import Tool

if TYPE_CHECKING:
    from micdrop_agent.tools._tool import ToolKind

_END_CALL: Final = (
    "Hang up. Call this when the conversation has come to its end: the caller says goodbye, says "
    "that nothing else is needed, or asks to hang up. Say a short goodbye in the same response. Do "
    "not call it after a mere thank-you, or while a question of the caller's is still open."
)
_SEMANTIC_TURN: Final = (
    "Go on listening. Call this, and say nothing, when what the caller said last stops in the "
    "middle: a sentence without its end, a number or an address that is only half there, a word "
    "such as 'and' or 'because' at the end, or 'wait, let me look'. When in doubt whether the "
    "caller is done, answer instead."
)
_IGNORE_USER_NOISE: Final = (
    "Disregard the last thing that was heard. Call this, and say nothing, when it was not meant "
    "for you: a cough, a hum or other sounds written down as words, a stray word that makes no "
    "sense here, or talk with somebody else in the room. Never call it for a short answer to your "
    "own question, such as 'yes', 'no' or 'okay'."
)


def control_tools(
    *,
    auto_end_call: bool | str | None = False,
    auto_semantic_turn: bool | str | None = False,
    auto_ignore_user_noise: bool | str | None = False,
) -> list[Tool]:
    """The control tools that are switched on: ``end_call``, ``semantic_turn``, ``ignore_user_noise``.

    Args:
        auto_end_call: True for the default description, a text to use instead; False, None and
            blank text leave the tool out.
        auto_semantic_turn: The same for ``semantic_turn``.
        auto_ignore_user_noise: The same for ``ignore_user_noise``.

    Raises:
        TypeError: An option is neither a bool nor a text.

    Source: Micdrop's ``autoEndCall``, ``autoSemanticTurn``, ``autoIgnoreUserNoise``.
    """
    wanted: list[tuple[ToolKind, object, str]] = [
        ("end_call", auto_end_call, _END_CALL),
        ("semantic_turn", auto_semantic_turn, _SEMANTIC_TURN),
        ("ignore_user_noise", auto_ignore_user_noise, _IGNORE_USER_NOISE),
    ]
    tools: list[Tool] = []
    for kind, option, default in wanted:
        if option is not None and not isinstance(option, bool | str):
            raise TypeError(f"auto_{kind} must be True, False or a text, not {option!r}")
        text = option.strip() if isinstance(option, str) else default if option else ""
        if text:
            tools.append(
                Tool(
                    name=kind,
                    description=text,
                    execute=_do_nothing,
                    kind=kind,
                    # end_call alone leaves room for a farewell.
                    skip_answer=kind != "end_call",
                )
            )
    return tools


def _do_nothing() -> None:
    return None
