"""What the library's own tests are made of, for tests of your own agents and applications.

``run_virtual`` runs async code in virtual time on asyncio or Trio; ``ScriptedProvider`` is a model server that
follows a script, byte for byte; ``ScriptedAgent`` an agent that does.
"""

from __future__ import annotations

from micdrop_agent.testing._invariants import InvariantError, check_invariants
from micdrop_agent.testing._leaks import assert_no_leaks
from micdrop_agent.testing._loop import DeadlockError
from micdrop_agent.testing._probe import AnswerTrace, Probe, Trace
from micdrop_agent.testing._provider import Exchange, ReceivedRequest, Reply, ScriptedProvider
from micdrop_agent.testing._replies import call_tool, fault, parts, say
from micdrop_agent.testing._scripted import HANG, Act, Call, ScriptedAgent
from micdrop_agent.testing._streams import MemoryByteStream, memory_connection
from micdrop_agent.testing._sweep import INJECTIONS, NATIVE, SweepReport, cancel_everywhere, read, run_scenario
from micdrop_agent.testing._virtual import BACKENDS, Backend, backend_options, count_steps, run_virtual
from micdrop_agent.testing._wire import wire_attempt, wire_script

__all__ = [
    "BACKENDS",
    "HANG",
    "INJECTIONS",
    "NATIVE",
    "Act",
    "AnswerTrace",
    "Backend",
    "Call",
    "DeadlockError",
    "Exchange",
    "InvariantError",
    "MemoryByteStream",
    "Probe",
    "ReceivedRequest",
    "Reply",
    "ScriptedAgent",
    "ScriptedProvider",
    "SweepReport",
    "Trace",
    "assert_no_leaks",
    "backend_options",
    "call_tool",
    "cancel_everywhere",
    "check_invariants",
    "count_steps",
    "fault",
    "memory_connection",
    "parts",
    "read",
    "run_scenario",
    "run_virtual",
    "say",
    "wire_attempt",
    "wire_script",
]
