"""Invariants 2, 5, 6, 8, 9 and 10 of a ``FallbackAgent``, over random trees of children.

The undisturbed run is compared with a model (``fallback_tree``), so an answer that is safe but wrong fails too.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from property_support import quickly

from fallback_tree import Leaf, Log, Node, Said, Sup, TreeHost, course, trees
from micdrop_agent.errors import AllAgentsFailedError
from micdrop_agent.events import AgentSwitched, AnswerFailed, AnswerSkipped, MessageAdded
from micdrop_agent.messages import ToolCall
from micdrop_agent.testing import BACKENDS, Backend, InvariantError, Probe, Trace, run_scenario, run_virtual

both = pytest.mark.parametrize("backend", BACKENDS)
fractions = st.floats(0, 1, exclude_max=True)
disturbances = st.sampled_from(["cancel", "cancel(heard)", "answer", "aclose", "close answer", "host scope"])
lags = st.sampled_from([0.0, 0.0, 0.6, 1.0])
seeds = st.none() | st.integers(0, 99)


def all_leaves(node: Node) -> list[Leaf]:
    return [node] if isinstance(node, Leaf) else [leaf for child in node.children for leaf in all_leaves(child)]


def effects(log: Log, trace: Trace) -> list[tuple[str, str]]:
    """What was done in the (only) answer, chunks and tools in their order, each with whose it was."""
    done = [
        (position, 1, "say", chunk.partition("x")[0] + "x") for position, chunk in enumerate(trace.answers[0].written)
    ]
    done += [(position, 0, "tool", who) for who, position in log.tools]
    return [(kind, who) for _, _, kind, who in sorted(done, key=lambda each: each[:2])]


@both
@quickly
@given(tree=trees(ties=False, restart=True))
def test_invariants_9_and_10_a_quiet_answer_is_what_the_model_says(backend: Backend, tree: Sup) -> None:
    """Text, tools, who was asked, who is active, what was told, and how it ended."""
    host = TreeHost(tree)
    wanted = course(tree, 0.0, Said(), root=True)
    note(f"model: {wanted}")
    try:
        trace = run_scenario(host, backend)
    except InvariantError as error:
        if error.number != 5 or not any(switch[2] for _, kind, switch in wanted.steps if kind == "switch"):
            raise
        trace = None  # a restart leaves text that is heard and not stored: that is what it is for
    assert sorted(host.log.asked) == sorted(name for _, name in wanted.asks)
    assert [who for who, _ in host.log.tools] == [what[0] for _, kind, what in wanted.steps if kind == "tool"]
    if trace is not None:
        compare(trace, wanted, tree, host)


def compare(trace: Trace, wanted: Any, tree: Sup, host: TreeHost) -> None:
    answer = trace.answers[0]
    assert "".join(answer.received) == "".join(what[1] for _, kind, what in wanted.steps if kind == "say")
    switches = [(event.from_, event.to, event.restarted) for event in trace.events if isinstance(event, AgentSwitched)]
    assert switches == [what for _, kind, what in wanted.steps if kind == "switch"]
    ended, end, how = wanted.steps[-1]
    assert answer.answer.result.duration == pytest.approx(ended, abs=1e-6)
    assert host.agent is not None
    if end == "ok":
        assert answer.answer.status == "completed"
        top = [what[1] for _, kind, what in wanted.steps if kind == "switch" and what[1] in named(tree)]
        assert host.agent.active_name == (top[-1] if top else tree.children[0].name)
    else:
        assert answer.answer.status == "failed"
        error = answer.answer.result.error
        assert isinstance(error, AllAgentsFailedError) == how.endswith("all")
        assert sum(isinstance(event, AnswerSkipped) for event in trace.events) == how.endswith("all")
        if how == "all":
            assert host.agent.active_name == tree.children[0].name


def named(tree: Sup) -> set[str]:
    return {child.name for child in tree.children}


@both
@quickly
@given(tree=trees(ties=True, restart=False), lag=lags, seed=seeds)
def test_invariant_9_ties_and_lag_leave_no_trace_of_a_loser(
    backend: Backend, tree: Sup, lag: float, seed: int | None
) -> None:
    """Children that speak in the same tick: one of them answers, whole, and the others do nothing at all."""
    host = TreeHost(tree)
    trace = run_scenario(host, backend, lag=lag, shuffle_seed=seed)
    check_groups(host, trace)
    assert len(set(host.log.asked)) == len(host.log.asked), "invariant 10: each child at most once"


def check_groups(host: TreeHost, trace: Trace) -> None:
    """Each child has one stretch of the answer, and it is the beginning of its script."""
    done = effects(host.log, trace)
    scripts = {leaf.name: [effect for _, effect in leaf.acts] for leaf in all_leaves(host.tree)}
    stretches: list[tuple[str, list[str]]] = []
    for kind, who in done:
        assert who in scripts, f"a ghost: {who}"
        if not stretches or stretches[-1][0] != who:
            stretches.append((who, []))
        stretches[-1][1].append(kind)
    assert len({who for who, _ in stretches}) == len(stretches), f"interleaved: {stretches}"
    for who, kinds in stretches:
        assert kinds == scripts[who][: len(kinds)]
    for who, _ in stretches[:-1]:
        ends = {leaf.name: leaf.end for leaf in all_leaves(host.tree)}
        assert ends[who] in {"fail", "bug", "filter"}, "only a child that failed is followed by another"
    calls = [event for event in trace.events if isinstance(event, MessageAdded) and isinstance(event.message, ToolCall)]
    assert len(calls) == sum(kind == "tool" for kind, _ in done), "every stored call was run by whoever answered"


@both
@quickly
@given(tree=trees(ties=True, restart=False), what=disturbances, fraction=fractions, lag=lags, seed=seeds)
def test_invariants_2_5_and_6_hold_wherever_an_answer_is_cut(
    backend: Backend, tree: Sup, what: str, fraction: float, lag: float, seed: int | None
) -> None:
    """Cancelled, superseded, closed at any step, in any switch: ``run_scenario`` checks every invariant."""
    host = TreeHost(tree, turns=2)
    length = run_scenario(TreeHost(tree, turns=2), backend, lag=lag, shuffle_seed=seed).steps
    run_scenario(host, backend, inject=what, step=1 + int(fraction * length), lag=lag, shuffle_seed=seed)


@both
@quickly
@given(tree=trees(ties=True, restart=True), fraction=fractions, lag=lags, seed=seeds)
def test_invariants_8_and_10_a_barge_in_is_never_a_failure(
    backend: Backend, tree: Sup, fraction: float, lag: float, seed: int | None
) -> None:
    """After ``cancel()`` nobody is asked, nothing has failed, and no child's health is worse."""
    seen: dict[str, Any] = {}

    def health(host: TreeHost) -> dict[str, int]:
        assert host.agent is not None
        return {key: child.failures for key, child in host.agent.health.snapshot().items()}

    class Host(TreeHost):
        async def __call__(self, probe: Probe) -> None:
            await super().__call__(probe)
            seen["after"] = (list(self.log.asked), health(self))

    host = Host(tree)
    length = steps_of(TreeHost(tree), backend, lag, seed)

    def cancel(step: int) -> None:
        if step == 1 + int(fraction * length) and host.agent is not None and host.agent.answering:
            host.agent.cancel()
            seen["at"] = (list(host.log.asked), health(host))

    trace = run_quietly(host, backend, cancel, lag, seed)
    if "at" in seen:
        assert seen["at"] == seen["after"]
        assert trace.answers[0].answer.status == "cancelled"
        assert not any(isinstance(event, AnswerFailed | AnswerSkipped) for event in trace.events)


def steps_of(host: TreeHost, backend: Backend, lag: float, seed: int | None) -> int:
    count = [0]
    run_quietly(host, backend, lambda step: count.__setitem__(0, step), lag, seed)
    return count[0]


def run_quietly(host: TreeHost, backend: Backend, on_step: Any, lag: float, seed: int | None) -> Trace:
    """Run without the checks of ``run_scenario``, which know no restart."""
    probe = Probe()
    run_virtual(backend, host, probe, on_step=on_step, lag=lag, shuffle_seed=seed, max_steps=100_000)
    assert [number for number, _ in probe.trace.violations] == []
    return probe.trace
