"""Options that come in groups: frozen, checked when they are made, durations in seconds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import attrs

from micdrop_agent.messages import Item, Message, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


__all__ = ["ExtractJson", "ExtractTag", "Retry", "Timeouts", "TurnContext"]

CLOSE_TIMEOUT: Final = 0.5
"""Longest in seconds that closing one thing (a response, an answer, a child) is waited for."""

LEAVE_TIMEOUT: Final = 5.0
"""Longest in seconds that leaving an agent's block waits: for what still runs, for its resources, for its store."""


def check_seconds(name: str, value: object, *, zero: bool = True, none: bool = False) -> None:
    """Refuse ``value`` unless it is a finite number of seconds; the error names the option."""
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        least = "at least 0" if zero else "more than 0"
        raise ValueError(f"{name} must be {least} seconds, not {value!r}")


def check_count(name: str, value: object, *, least: int, none: bool = False) -> None:
    """Refuse ``value`` unless it is a whole number of at least ``least``."""
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def check_number(name: str, value: object, *, fits: Callable[[float], bool], limits: str, of: str = "") -> None:
    """Refuse ``value`` unless it is a finite number that ``fits``; ``limits`` and ``of`` are words for the error."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number{of}, not {value!r}")
    if not math.isfinite(value) or not fits(value):
        raise ValueError(f"{name} must be {limits}, not {value!r}")


def check_flag(name: str, value: object) -> None:
    """Refuse ``value`` unless it is ``True`` or ``False``."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")


def check_text(name: str, value: object, *, empty: bool = True, none: bool = False) -> None:
    """Refuse ``value`` unless it is a string."""
    if value is None and none:
        return
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")
    if not empty and not value:
        raise ValueError(f"{name} must not be empty")


def check_function(name: str, value: object, *, of: str = "") -> None:
    """Refuse ``value`` unless it is ``None`` or can be called."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be a function{of}, not {value!r}")


def check_type(name: str, value: object, *, kind: type, none: bool = False) -> None:
    """Refuse ``value`` unless it is an instance of ``kind``."""
    if not isinstance(value, kind) and not (none and value is None):
        raise TypeError(f"{name} must be a {kind.__name__}, not {value!r}")


def check_choice(name: str, value: object, *, known: tuple[object, ...]) -> None:
    """Refuse ``value`` unless it is one of ``known``."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")


def validated(check: Callable[..., None], **how: Any) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """``check(name, value, **how)`` as the validator of a field."""

    def validator(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
        check(attribute.name, value, **how)

    return validator


_seconds: Final = validated(check_seconds)
_limit: Final = validated(check_seconds, zero=False, none=True)
_tag: Final = validated(check_text, empty=False)
_callback: Final = validated(check_function, of=" of one value")
_flag: Final = validated(check_flag)


def _rate(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        check_number(attribute.name, value, fits=lambda rate: rate > 0, limits="more than 0", of=" of letters a second")


def _at_least_one(value: float) -> bool:
    return value >= 1


def _is_share(value: float) -> bool:
    return 0 <= value <= 1


@attrs.frozen(kw_only=True)
class Retry:
    """When a failed request is sent again, before any chunk of the answer was received.

    The wait before retry ``n`` (1, 2, …) is ``first_wait * factor ** (n - 1)``, at most
    ``max_wait``, shortened by a random share of up to ``jitter``. Micdrop's fixed delay of
    ``d`` seconds is ``Retry(max_retries=n, first_wait=d, factor=1, jitter=0)``.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option is out of range; the message names it.

    Source: Micdrop ``maxRetry`` (default 3) and ``retryDelay``.
    """

    max_retries: int = attrs.field(default=3, validator=validated(check_count, least=0))
    """Requests after the first one of a step; 0 means no retry."""

    first_wait: float = attrs.field(default=0.5, validator=_seconds)
    """Seconds before the first retry."""

    factor: float = attrs.field(default=2.0, validator=validated(check_number, fits=_at_least_one, limits="at least 1"))
    """How much longer each further wait is; at least 1."""

    max_wait: float = attrs.field(default=8.0, validator=_seconds)
    """Longest wait in seconds."""

    jitter: float = attrs.field(
        default=0.25, validator=validated(check_number, fits=_is_share, limits="between 0 and 1")
    )
    """Share (0 to 1) by which a wait may be shortened at random, so that calls spread out."""

    def wait_before(self, retry: int, chance: float = 0.0) -> float:
        """Seconds to wait before retry number ``retry`` (from 1); ``chance`` is in [0, 1)."""
        wait = self.first_wait * self.factor ** min(retry - 1, 64)
        return min(wait, self.max_wait) * (1 - self.jitter * chance)


@attrs.frozen(kw_only=True)
class Timeouts:
    """How long a provider may take, in seconds; ``None`` means no limit.

    The clocks are the library's own and are reset only by useful output (text or a part of a
    tool call), never by keep-alives or empty deltas.

    Raises:
        TypeError: A limit is not a number.
        ValueError: A limit is not more than 0; the message names it.
    """

    connect: float | None = attrs.field(default=2.0, validator=_limit)
    """Seconds until the connection stands (TCP and TLS)."""

    first_chunk: float | None = attrs.field(default=5.0, validator=_limit)
    """Seconds from the request to the first useful output of a response."""

    between_chunks: float | None = attrs.field(default=5.0, validator=_limit)
    """Seconds between two useful outputs."""

    total: float | None = attrs.field(default=60.0, validator=_limit)
    """Seconds for a whole answer: all its steps, tools and retries, but not the waits for a slow consumer."""

    min_rate: float | None = attrs.field(default=1.0, validator=_rate)
    """Letters a second that a response must bring on average, over twice the time of ``between_chunks``. The slowest
    models are four times as fast as the default; a server that drips is not waited for."""


def _class(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, type):
        raise TypeError(f"{attribute.name} must be a class, not {value!r}")


@attrs.frozen
class ExtractJson:
    """Take a JSON object from the end of an answer; it is not spoken.

    Args:
        type: The class whose instance it becomes: an attrs class, a dataclass, a TypedDict or a pydantic
            model. A value that does not fit is logged, and ``result.extracted`` is ``None``.
        callback: Called with the parsed value, before the message is stored. A coroutine
            function is run in the agent's task group. An error in it is logged.
        save_in_metadata: Store the value as ``metadata["extracted"]`` too.

    Source: Micdrop page "Agent (LLM)", ``ExtractJsonOptions``.
    """

    type: type | None = attrs.field(default=None, validator=_class)
    callback: Callable[[Any], object] | None = attrs.field(default=None, validator=_callback, kw_only=True)
    save_in_metadata: bool = attrs.field(default=False, validator=_flag, kw_only=True)


@attrs.frozen(kw_only=True)
class ExtractTag:
    """Take the text between two tags from the end of an answer; it is not spoken.

    Args:
        start_tag: For example ``"<score>"``.
        end_tag: For example ``"</score>"``.
        callback: Called with the text between the tags, without white space around it.
        save_in_metadata: Store the text as ``metadata["extracted"]`` too.

    Source: Micdrop page "Agent (LLM)", ``ExtractTagOptions``.
    """

    start_tag: str = attrs.field(validator=_tag)
    end_tag: str = attrs.field(validator=_tag)
    callback: Callable[[str], object] | None = attrs.field(default=None, validator=_callback)
    save_in_metadata: bool = attrs.field(default=False, validator=_flag)


def _items(instance: object, attribute: attrs.Attribute[Any], value: tuple[object, ...]) -> None:
    del instance
    for item in value:
        if not isinstance(item, Message | ToolCall | ToolResult):
            raise TypeError(f"{attribute.name} holds messages and tool calls, not {item!r}")


def _as_tuple(items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(items)


@attrs.frozen(kw_only=True)
class TurnContext:
    """What a hook has the model know for one answer: results of a search, the time, what a screen shows.

    It is in the requests of that answer, and nowhere else: never stored, not in the next answer, not heard.

    Args:
        system: Put after the system prompt.
        items: Put before what the caller said last.
    """

    system: str = attrs.field(default="", validator=validated(check_text))
    items: tuple[Item, ...] = attrs.field(default=(), converter=_as_tuple, validator=_items)
