"""Several agents in a row: when one fails, the next goes on (Micdrop page "FallbackAgent").

``FallbackAgent`` is the supervisor, ``HealthRegistry`` what the calls of a process know of its children.
"""

from __future__ import annotations

from micdrop_agent.fallback.agent import FallbackAgent
from micdrop_agent.fallback.health import ChildHealth, HealthChanged, HealthRegistry

__all__ = ["ChildHealth", "FallbackAgent", "HealthChanged", "HealthRegistry"]
