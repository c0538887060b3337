"""How every scenario of the sweep goes when nobody interrupts it: the quiet oracle beside the safety properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from micdrop_agent import Message, ToolCall, ToolResult

if TYPE_CHECKING:
    from micdrop_agent.testing import Trace


def told(trace: Trace) -> list[str]:
    """A run in short: each answer with its text and requests, the conversation, and the error that left."""
    lines: list[str] = []
    for answer in trace.answers:
        result: Any = answer.answer.result  # of an answer that has ended
        failed = "".join(f" !{attempt.agent}" for attempt in result.attempts)
        sent = f" {result.requests} sent" if result.requests else ""
        lines.append(f"{result.status}: {'|'.join(answer.received)}{sent}{failed}")
    lines.append(" / ".join(_short(item) for item in trace.final[1:]))
    lines = [line.replace("Uno", "One").replace("dos", "two") for line in lines]  # fallback_hedged ends in a tie
    return lines + ([] if trace.error is None else [f"raised {type(trace.error).__name__}"])


def _short(item: object) -> str:
    match item:
        case Message(role=role, content=content, metadata=metadata):
            return f"{role[0]}{''.join(sorted(f'[{key}]' for key in metadata or {}))} {content}"
        case ToolCall():
            return f"call {item.tool_name}"
        case ToolResult():
            return f"result {item.output[:40]}"
        case _:
            raise AssertionError(item)


EXPECTED: Final[dict[str, list[str]]] = {
    "plain": [
        "completed: One |two, |three.",
        "completed: One |two, |three.",
        "u Question 0 / a One two, three. / u Question 1 / a One two, three.",
    ],
    "tools_at_once": [
        "completed: Let me see. |There.",
        "completed: Let me see. |There.",
        'u Question 0 / a Let me see.  / call quick / result "done" / call slow / result "done late" / call raises / result {"error":"the tool failed"} / call finishes / result "done all the same" / a There. / u Question 1 / a Let me see.  / call quick / result "done" / call slow / result "done late" / call raises / result {"error":"the tool failed"} / call finishes / result "done all the same" / a There.',
    ],
    "tools_in_turn": [
        "completed: Well. |There.",
        "completed: Well. |There.",
        'u Question 0 / call slow / result "done late" / a Well.  / call finishes / result "done all the same" / call quick / result "done" / a There. / u Question 1 / call slow / result "done late" / a Well.  / call finishes / result "done all the same" / call quick / result "done" / a There.',
    ],
    "tools_in_threads": [
        "completed: Let me see. |There.",
        'u Question 0 / a Let me see.  / call blocks / result 6 / call blocks_to_the_end / result "done" / call slow / result "done late" / a There.',
    ],
    "failing": [
        "failed: One |two.",
        "completed: Fine.",
        "u Question 0 / a[interrupted] One two. / u Question 1 / a Fine.",
    ],
    "small_buffer": [
        "completed: One |two, |three.",
        "completed: One |two, |three.",
        "u Question 0 / a One two, three. / u Question 1 / a One two, three.",
    ],
    "slow_reader": [
        "completed: One |two, |three.",
        "a One two, three.",
    ],
    "speculative": [
        "cancelled: ",
        "cancelled: ",
        "completed: One |two.",
        "a One two.",
    ],
    "never_read": [
        "completed: ",
        "a One two.",
    ],
    "hook": [
        "completed: One |two.",
        "completed: One |two.",
        "u Question 0 / a One two. / u Question 1 / a One two.",
    ],
    "extracting": [
        "completed: One| two",
        "completed: One| two",
        "u Question 0 / a[extracted] One two / u Question 1 / a[extracted] One two",
    ],
    "reentrant_listener": [
        "cancelled: One ",
        "completed: Three.",
        "u Well? / a[interrupted] One  / s stop / a Three.",
    ],
    "model": [
        "completed: Let me see. |It is |1. 2 sent",
        "completed: Fine. 1 sent",
        "u Question 0 / a Let me see.  / call look / result 1 / a It is 1. / u Question 1 / a Fine.",
    ],
    "model_retries": [
        "completed: Fine. 2 sent",
        "u Question 0 / a Fine.",
    ],
    "fallback_before_text": [
        "completed: One |two. !ScriptedAgent !ScriptedAgent #2",
        "completed: One |two.",
        "u Question 0 / a One two. / u Question 1 / a One two.",
    ],
    "fallback_after_text": [
        "completed: One |two. !ScriptedAgent",
        "u Question 0 / a One two.",
    ],
    "fallback_restarts": [
        "completed: One |All |anew. !ScriptedAgent",
        "u Question 0 / a All anew.",
    ],
    "fallback_after_tool": [
        "completed: One |two. !ScriptedAgent",
        "completed: One |two.",
        'u Question 0 / call slow / result "done late" / a One two. / u Question 1 / a One two.',
    ],
    "fallback_silent_child": [
        "completed: One |two. !ScriptedAgent",
        "completed: One |two.",
        "u Question 0 / a One two. / u Question 1 / a One two.",
    ],
    "fallback_hedged": [
        "completed: One |two.",
        "completed: One |two.",
        "u Question 0 / a One two. / u Question 1 / a One two.",
    ],
    "fallback_all_fail": [
        "failed:  !ScriptedAgent !ScriptedAgent #2",
        "failed:  !ScriptedAgent !ScriptedAgent #2",
        "u Question 0 / u Question 1",
    ],
    "fallback_nested": [
        "completed: One |two. !ScriptedAgent !ScriptedAgent",
        "completed: One |two.",
        "u Question 0 / a One two. / u Question 1 / a One two.",
    ],
    "fallback_models": [
        "completed: One |two. 3 sent !ChatAgent(m) !ChatAgent(m) #2",
        "u Question 0 / a One two.",
    ],
    "farewell": [
        "completed: Good |bye.",
        "u That is all. / call end_call / result null / a Good bye.",
    ],
    "silent_turns": [
        "skipped: ",
        "skipped: ",
        "u[second] Hm. / call ignore_user_noise / result null / u I would like / call semantic_turn / result null",
    ],
    "model_silent": [
        "skipped:  1 sent",
        "u I would like / call semantic_turn / result null",
    ],
    "talked_over": [
        "cancelled: One ",
        "cancelled: Fine ",
        'u Well? / a[interrupted] One  / u Stop! / u Well? / call quick / result "done" / a[interrupted] Fine  / u Stop!',
    ],
    "listeners": [
        "completed: One |two.",
        "u Well? / s the caller spoke / a One two.",
    ],
    "cancelled_at_its_call": [
        "cancelled: ",
        'u Well? / call must_not_run / result {"error":"cancelled"}',
    ],
    "tools_that_interrupt": [
        "cancelled: ",
        "cancelled: ",
        "completed: One.",
        'u Hang up. / call hang_up / result "hung up" / u Again. / call ask_again / result {"error":"cancelled"} / a One.',
    ],
    "host_raises": [
        "cancelled: ",
        "u Well?",
        "raised LookupError",
    ],
    "filler": [
        "completed: Hm. |One |two.",
        "u Well? / a One two.",
    ],
    "model_gives_up": [
        "failed:  2 sent",
        "failed: Hello  1 sent",
        "failed:  1 sent",
        "completed: Fine. 1 sent",
        "u Question 0 / u Question 1 / a[interrupted] Hello  / u Question 2 / u Question 3 / a Fine.",
    ],
    "model_steps": [
        "completed: Fine. 2 sent",
        "u Well? / call look / result 1 / a Fine.",
    ],
    "fallback_must_not_go_on": [
        "failed: One  !a",
        "completed: And |two.",
        "u Question 0 / a[interrupted] One  / u Question 1 / a And two.",
    ],
    "fallback_not_behind_a_tool": [
        "failed: One  !a",
        'u Question 0 / call quick / result "done" / a[interrupted] One ',
    ],
    "fallback_cut_in_a_tool": [
        "completed: One |two. !a",
        'u Question 0 / call quick / result {"error":"cancelled"} / a One two.',
    ],
    "fallback_slow_words": [
        "completed: One |two.",
        "u Question 0 / a One two.",
    ],
    "fallback_stubborn_loser": [
        "completed: One |two.",
        "u Well? / a One two.",
    ],
}
