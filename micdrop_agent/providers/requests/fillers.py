"""Words that stand in a request where nobody said any; never in the conversation."""

from __future__ import annotations

from typing import Final

__all__ = ["ACKNOWLEDGED", "CONTINUE_NOTE", "GO_ON", "OPENING"]

CONTINUE_NOTE: Final = (
    "Your last message was cut off where it ends. Go on from exactly there: say only what comes next, "
    "repeat nothing of it, and do not mention the interruption."
)

OPENING: Final = "(The call has just begun. Speak first.)"
"""Stands for the caller, who has said nothing yet: most servers want a message from the user."""

GO_ON: Final = "(Please go on.)"
"""Stands for the caller where the request would end with the assistant's words."""

ACKNOWLEDGED: Final = "Okay."
"""Stands for the answer that a caller's interruption prevented, between a result and the caller."""
