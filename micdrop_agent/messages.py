"""The items of a conversation: messages, tool calls and their results.

They are values: frozen, compared by content, and found in a conversation by identity.
Texts that are JSON (``parameters``, ``output``) stay the text they were, so that nothing
is encoded twice on the way back to a model.

Source: Micdrop page "Agent (LLM)", ``MicdropConversationMessage`` and ``addToolMessage``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, cast, get_args

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Item", "Message", "Role", "ToolCall", "ToolResult", "is_blank"]

Role = Literal["system", "user", "assistant"]
ROLES: Final[tuple[str, ...]] = get_args(Role)

_UNSPEAKABLE: Final = "\ufeff\u200b\u200c\u200d\u2060"
"""Characters that ``str.strip`` keeps although no voice can say them."""


def is_blank(text: str) -> bool:
    """Whether a voice would say nothing for ``text``: only white space and invisible characters.

    Source: Micdrop page "Agent (LLM)", ``addMessage``: such a message is ignored.
    """
    if text[:1].isalnum():  # nearly every text, and quick
        return False
    return not text or text.isspace() or not "".join(text.split()).strip(_UNSPEAKABLE)


_NO_EXTRA: Final = cast("Callable[[], Mapping[str, Any]]", dict)


def _text(_item: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{attribute.name} must be a string, not {value!r}")


@attrs.frozen
class Message:
    """Something that was said, or a note for the model.

    Args:
        role: ``"system"``, ``"user"`` or ``"assistant"``.
        content: The text.
        metadata: Facts about the message. The library sets ``interrupted`` (the caller
            barged in, or the provider failed), ``refusal`` and ``extracted``.
        extra: Members of its wire form that this version does not know.

    Raises:
        ValueError: ``role`` is none of the three.
        TypeError: ``content`` is not a string.
    """

    role: Role
    content: str
    metadata: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = attrs.field(factory=_NO_EXTRA, kw_only=True, repr=False)

    def __attrs_post_init__(self) -> None:
        # Not two validators: one is made within cancel(), for which a caller waits.
        if self.role not in ROLES:
            raise ValueError(f"role must be one of {', '.join(ROLES)}, not {self.role!r}")
        if not isinstance(self.content, str):
            raise TypeError(f"content must be a string, not {self.content!r}")


@attrs.frozen
class ToolCall:
    """A tool that the model asked for.

    Args:
        tool_call_id: The provider's id of the call; its result has the same.
        tool_name: Name of the tool.
        parameters: The arguments, as the JSON text that the model wrote.
        extra: Members of its wire form that this version does not know.
    """

    role: ClassVar[Literal["tool_call"]] = "tool_call"
    tool_call_id: str = attrs.field(validator=_text)
    tool_name: str = attrs.field(validator=_text)
    parameters: str = attrs.field(validator=_text)
    extra: Mapping[str, Any] = attrs.field(factory=_NO_EXTRA, kw_only=True, repr=False)


@attrs.frozen
class ToolResult:
    """What a tool returned, or an object with the member ``error``.

    Args:
        tool_call_id: Id of the call that it answers.
        tool_name: Name of the tool.
        output: The output as JSON text.
        extra: Members of its wire form that this version does not know.
    """

    role: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_call_id: str = attrs.field(validator=_text)
    tool_name: str = attrs.field(validator=_text)
    output: str = attrs.field(validator=_text)
    extra: Mapping[str, Any] = attrs.field(factory=_NO_EXTRA, kw_only=True, repr=False)


Item: TypeAlias = Message | ToolCall | ToolResult
