"""What the library's own tests are made of, for tests of your own agents and applications.

``run_virtual`` runs async code in virtual time on asyncio or Trio; ``ScriptedProvider`` is a model server that
follows a script, byte for byte; ``ScriptedAgent`` an agent that does.

Each name is loaded when it is first asked for: pytest imports this package in every project of an environment
(the fixtures in ``_plugin`` are registered there), and most of them test something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from micdrop_agent._late import late_names

if TYPE_CHECKING:
    from micdrop_agent.testing._call import (
        AUDIO_END,
        MemoryClient,
        MemoryLink,
        Partial,
        ScriptedSTT,
        ScriptedTTS,
        VoiceFault,
        memory_link,
    )
    from micdrop_agent.testing._call_probe import CallInvariantError, CallProbe, check_call
    from micdrop_agent.testing._call_sweep import CALL_INJECTIONS, CallRun, CallScenario, run_call, sweep_call
    from micdrop_agent.testing._cassette import Cassette, Match
    from micdrop_agent.testing._fixture_types import AssertNoLeaks, InterruptEverywhere, MakeProvider, RunVirtual
    from micdrop_agent.testing._invariants import InvariantError, check_invariants
    from micdrop_agent.testing._judge import Verdict, Vote, judge
    from micdrop_agent.testing._leaks import assert_no_leaks
    from micdrop_agent.testing._loop import DeadlockError
    from micdrop_agent.testing._mode import CassetteMode
    from micdrop_agent.testing._probe import AnswerTrace, Probe, Trace
    from micdrop_agent.testing._provider import Exchange, ReceivedRequest, Reply, ScriptedProvider
    from micdrop_agent.testing._replies import call_tool, fault, parts, say
    from micdrop_agent.testing._scripted import HANG, Act, Call, ScriptedAgent, scripted_tools
    from micdrop_agent.testing._stores import StoreContractError, check_store
    from micdrop_agent.testing._streams import MemoryByteStream, memory_connection
    from micdrop_agent.testing._sweep import (
        INJECTIONS,
        NATIVE,
        Scenario,
        SweepReport,
        cancel_everywhere,
        read,
        run_scenario,
        talk_to,
    )
    from micdrop_agent.testing._talk import ExpectationError, Talk, ToolUse, talk
    from micdrop_agent.testing._tape import CassetteError, RequestSeen, UnrecordedRequestError
    from micdrop_agent.testing._virtual import BACKENDS, Backend, backend_options, count_steps, run_virtual

__all__ = [
    "AUDIO_END",
    "BACKENDS",
    "CALL_INJECTIONS",
    "HANG",
    "INJECTIONS",
    "NATIVE",
    "Act",
    "AnswerTrace",
    "AssertNoLeaks",
    "Backend",
    "Call",
    "CallInvariantError",
    "CallProbe",
    "CallRun",
    "CallScenario",
    "Cassette",
    "CassetteError",
    "CassetteMode",
    "DeadlockError",
    "Exchange",
    "ExpectationError",
    "InterruptEverywhere",
    "InvariantError",
    "MakeProvider",
    "Match",
    "MemoryByteStream",
    "MemoryClient",
    "MemoryLink",
    "Partial",
    "Probe",
    "ReceivedRequest",
    "Reply",
    "RequestSeen",
    "RunVirtual",
    "Scenario",
    "ScriptedAgent",
    "ScriptedProvider",
    "ScriptedSTT",
    "ScriptedTTS",
    "StoreContractError",
    "SweepReport",
    "Talk",
    "ToolUse",
    "Trace",
    "UnrecordedRequestError",
    "Verdict",
    "VoiceFault",
    "Vote",
    "assert_no_leaks",
    "backend_options",
    "call_tool",
    "cancel_everywhere",
    "check_call",
    "check_invariants",
    "check_store",
    "count_steps",
    "fault",
    "judge",
    "memory_connection",
    "memory_link",
    "parts",
    "read",
    "run_call",
    "run_scenario",
    "run_virtual",
    "say",
    "scripted_tools",
    "sweep_call",
    "talk",
    "talk_to",
]

_HOME: Final = {
    "_call": (
        "AUDIO_END",
        "MemoryClient",
        "MemoryLink",
        "Partial",
        "ScriptedSTT",
        "ScriptedTTS",
        "VoiceFault",
        "memory_link",
    ),
    "_cassette": ("Cassette", "Match"),
    "_mode": ("CassetteMode",),
    "_fixture_types": ("AssertNoLeaks", "InterruptEverywhere", "MakeProvider", "RunVirtual"),
    "_call_probe": ("CallInvariantError", "CallProbe", "check_call"),
    "_call_sweep": ("CALL_INJECTIONS", "CallRun", "CallScenario", "run_call", "sweep_call"),
    "_invariants": ("InvariantError", "check_invariants"),
    "_judge": ("Verdict", "Vote", "judge"),
    "_leaks": ("assert_no_leaks",),
    "_loop": ("DeadlockError",),
    "_probe": ("AnswerTrace", "Probe", "Trace"),
    "_provider": ("Exchange", "ReceivedRequest", "Reply", "ScriptedProvider"),
    "_replies": ("call_tool", "fault", "parts", "say"),
    "_scripted": ("HANG", "Act", "Call", "ScriptedAgent", "scripted_tools"),
    "_stores": ("StoreContractError", "check_store"),
    "_streams": ("MemoryByteStream", "memory_connection"),
    "_sweep": (
        "INJECTIONS",
        "NATIVE",
        "Scenario",
        "SweepReport",
        "cancel_everywhere",
        "read",
        "run_scenario",
        "talk_to",
    ),
    "_talk": ("ExpectationError", "Talk", "ToolUse", "talk"),
    "_tape": ("CassetteError", "RequestSeen", "UnrecordedRequestError"),
    "_virtual": ("BACKENDS", "Backend", "backend_options", "count_steps", "run_virtual"),
}
"""The names that each module holds."""

__getattr__ = late_names(__name__, {name: f".{module}" for module, names in _HOME.items() for name in names})


def __dir__() -> list[str]:
    return sorted(__all__)
