"""What is asked of the text filters of a turn, beside filtering."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.text import TextFilter
    from micdrop_agent.text.joining import LeadInFilter, SeamFilter

__all__ = ["in_value", "seams_in"]


def seams_in(filters: Sequence[TextFilter]) -> list[SeamFilter | LeadInFilter]:
    """Those that look for the seam of a continuation."""
    if not filters:
        return []
    from micdrop_agent.text.joining import LeadInFilter, SeamFilter

    return [text_filter for text_filter in filters if isinstance(text_filter, SeamFilter | LeadInFilter)]


def in_value(filters: Sequence[TextFilter]) -> bool:
    """Whether the text stopped inside a value that is being extracted."""
    return any(getattr(text_filter, "in_value", False) for text_filter in filters)
