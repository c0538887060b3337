"""What a peer has to do: be asked, and hand out words as they come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SYSTEM = (
    "You are a helpful voice assistant on a phone line. Answer in one or two short spoken sentences, "
    "never use lists or markup, and say numbers as words."
)
SAID = (
    ("user", "Good morning, I would like to move my appointment."),
    ("assistant", "Of course. May I have your name and the day of the appointment?"),
    ("user", "Brandt, and it was next Tuesday at ten."),
    ("assistant", "Thank you, Mrs Brandt. Thursday at nine or Friday at two are free."),
)
LAST = "Friday at two sounds good. Do I need to bring anything?"


def turns(count: int) -> list[tuple[str, str]]:
    """Role and text of ``count`` messages, without the system prompt and the last words."""
    return [SAID[number % len(SAID)] for number in range(count - 2)]


def messages(count: int) -> list[dict[str, str]]:
    """The whole conversation as plain objects."""
    middle = [{"role": role, "content": text} for role, text in turns(count)]
    return [{"role": "system", "content": SYSTEM}, *middle, {"role": "user", "content": LAST}]


class Peer(ABC):
    """One library, used as its documentation says.

    Attributes:
        url: Base URL of the loopback provider.
        statement: What is timed as its import.
    """

    statement = ""

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def chunks(self, model: str, count: int) -> AsyncGenerator[str, None]:
        """One answer to a conversation of ``count`` messages."""

    async def prepare(self, model: str) -> None:  # noqa: B027 - most need nothing
        """What is made once per model; not timed."""

    async def crowd(self, model: str, many: int) -> None:
        """Before ``many`` answers at once: what each conversation needs, and no limit on connections."""
        del many
        await self.prepare(model)
