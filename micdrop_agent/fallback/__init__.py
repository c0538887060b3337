"""Several agents in a row: when one fails, the next goes on (Micdrop page "FallbackAgent").

``FallbackAgent`` is the supervisor, ``HealthRegistry`` what the calls of a process know of its children.
"""

from __future__ import annotations

from micdrop_agent.fallback.agent import FallbackAgent
from micdrop_agent.fallback.bus import HealthBus, MemoryBus, RedisBus
from micdrop_agent.fallback.health import ChildHealth, HealthChanged, HealthRegistry
from micdrop_agent.fallback.shared import SharedHealth
from micdrop_agent.text.joining import LEAD_INS, LeadInWords

__all__ = [
    "LEAD_INS",
    "ChildHealth",
    "FallbackAgent",
    "HealthBus",
    "HealthChanged",
    "HealthRegistry",
    "LeadInWords",
    "MemoryBus",
    "RedisBus",
    "SharedHealth",
]
