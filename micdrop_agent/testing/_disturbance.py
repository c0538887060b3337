"""Whether the run that is going on has been interrupted by a sweep: what is asked then was never recorded."""

from __future__ import annotations

__all__ = ["Disturbance"]


class Disturbance:
    """One flag: a process runs one scenario at a time."""

    happened = False
