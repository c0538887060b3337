"""``HealthRegistry``: a circuit breaker per child, against a clock and a die of our own."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from property_support import searching

from fallback_kit import down
from micdrop_agent.errors import AllAgentsFailedError, Attempt
from micdrop_agent.fallback import HealthChanged, HealthRegistry
from micdrop_agent.testing import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTED = ("timeout", "overloaded", "server", "connection", "truncated", "empty", "protocol")
BLAMELESS = ("bad_request", "context_length", "content_filter", "max_steps")


class Bench:
    """A registry whose clock and die are set by hand."""

    def __init__(self, **options: Any) -> None:
        self.now = 1000.0
        self.die = 1.0
        self.told: list[HealthChanged] = []
        self.registry = HealthRegistry(clock=lambda: self.now, chance=lambda: self.die, **options)
        self.registry.on_change(self.told.append)

    def fail(self, kind: str = "server", times: int = 1, **facts: Any) -> None:
        for _ in range(times):
            self.registry.failed("a", down(kind, **facts))

    @property
    def state(self) -> str:
        return self.registry.state("a")

    @property
    def retry_in(self) -> float | None:
        return self.registry.snapshot()["a"].retry_in


def test_a_child_that_was_never_seen_is_closed_and_leaves_no_trace() -> None:
    registry = HealthRegistry()
    assert registry.state("x") == "closed"
    assert registry.seconds_until_retry("x") == 0
    assert registry.p95("x") is None
    assert registry.snapshot() == {}


@pytest.mark.parametrize("kind", COUNTED)
def test_three_counted_failures_in_a_row_take_a_child_out(kind: str) -> None:
    bench = Bench()
    bench.fail(kind, 2)
    assert bench.state == "closed"
    bench.fail(kind)
    assert bench.state == "open"
    assert bench.registry.snapshot()["a"].failures == 3


def test_a_bug_in_a_child_counts() -> None:
    bench = Bench()
    for _ in range(3):
        bench.registry.failed("a", KeyError("bug"))
    assert bench.state == "open"


@pytest.mark.parametrize("kind", BLAMELESS)
def test_a_failure_that_is_the_request_s_fault_counts_for_nothing(kind: str) -> None:
    bench = Bench()
    bench.fail(kind, 10)
    assert bench.state == "closed"
    assert bench.registry.snapshot()["a"].failures == 0


def test_a_success_forgets_the_failures_before_it() -> None:
    bench = Bench()
    bench.fail(times=2)
    bench.registry.succeeded("a")
    bench.fail(times=2)
    assert bench.state == "closed"
    assert bench.told == []


@pytest.mark.parametrize("kind", ["server", "auth", "rate_limit"])
def test_an_answer_that_was_asked_for_before_a_child_went_out_does_not_bring_it_back(kind: str) -> None:
    bench = Bench()
    bench.fail(kind, 3)
    bench.now += 0.2
    bench.registry.succeeded("a", 0.3)
    assert bench.state == "open"
    assert len(bench.told) == 1
    bench.now += 400
    bench.registry.succeeded("a", 0.3)
    assert bench.state == "closed"


@pytest.mark.parametrize("kind", ["auth", "not_found"])
def test_what_only_a_person_can_mend_is_out_until_reset(kind: str) -> None:
    bench = Bench()
    bench.fail(kind)
    bench.now += 10**9
    assert bench.state == "open"
    assert bench.retry_in == math.inf
    bench.registry.reset("a")
    assert bench.state == "closed"
    assert [(change.key, change.state) for change in bench.told] == [("a", "open"), ("a", "closed")]


@pytest.mark.parametrize("later", ["rate_limit", "server", "quota"])
def test_no_later_failure_shortens_what_only_a_reset_ends(later: str) -> None:
    bench = Bench()
    bench.fail("auth")
    bench.fail(later, 4, retry_after=1.0)
    assert bench.retry_in == math.inf


def test_an_account_without_credit_is_out_for_long() -> None:
    bench = Bench(quota_back_off=600.0)
    bench.fail("quota")
    assert bench.retry_in == 600.0
    bench.fail("quota", retry_after=7200.0)
    assert bench.retry_in == 7200.0


def test_a_rate_limit_is_out_for_as_long_as_the_provider_asked() -> None:
    bench = Bench()
    bench.fail("rate_limit", retry_after=7.0)
    assert bench.retry_in == 7.0
    bench.now += 6.9
    assert bench.state == "open"
    bench.now += 0.1
    assert bench.state == "half_open"


def test_a_rate_limit_without_a_time_is_out_for_ten_seconds() -> None:
    bench = Bench()
    bench.fail("rate_limit")
    assert bench.retry_in == 10.0


def test_the_back_off_doubles_up_to_its_cap() -> None:
    bench = Bench(failures=1, first_back_off=2.0, max_back_off=9.0)
    seen: list[float | None] = []
    for _ in range(5):
        assert bench.registry.started("a") is (bench.state == "open" and bool(seen))
        bench.fail()
        seen.append(bench.retry_in)
        bench.now += bench.retry_in or 0.0
    assert seen == [2.0, 4.0, 8.0, 9.0, 9.0]


def test_the_back_off_is_drawn_between_nothing_and_the_whole() -> None:
    for die in (0.0, 0.25, 0.999):
        bench = Bench(failures=1, first_back_off=8.0)
        bench.die = die
        bench.fail()
        assert bench.retry_in == pytest.approx(8.0 * die)


def test_a_counted_failure_waits_at_least_as_long_as_the_provider_asked() -> None:
    bench = Bench(failures=1, first_back_off=2.0)
    bench.fail("overloaded", retry_after=30.0)
    assert bench.retry_in == 30.0


def test_many_calls_that_fail_at_once_open_the_circuit_once() -> None:
    """Their failures arrive while it is out already: the back-off does not run to its cap."""
    bench = Bench(first_back_off=2.0, max_back_off=300.0)
    bench.fail(times=50)
    assert bench.retry_in == 2.0
    assert len(bench.told) == 1


def test_a_half_open_child_is_allowed_one_attempt() -> None:
    bench = Bench(failures=1, first_back_off=1.0)
    bench.fail()
    assert not bench.registry.started("a"), "an attempt while it is out is no trial"
    bench.now += 1.0
    assert bench.state == "half_open"
    assert bench.registry.started("a")
    assert bench.state == "open", "for everybody else it is out"
    assert not bench.registry.started("a"), "the second attempt is not the trial"
    bench.registry.succeeded("a")
    assert bench.state == "closed"


def test_an_abandoned_attempt_leaves_the_trial_to_another() -> None:
    bench = Bench(failures=1, first_back_off=1.0)
    bench.fail()
    bench.now += 1.0
    bench.registry.started("a")
    bench.registry.abandoned("a")
    assert bench.state == "half_open"
    assert bench.registry.snapshot()["a"].failures == 1


def test_a_trial_that_fails_by_the_request_s_fault_leaves_the_child_half_open() -> None:
    bench = Bench(failures=1, first_back_off=1.0)
    bench.fail()
    bench.now += 1.0
    bench.registry.started("a")
    bench.fail("bad_request")
    assert bench.state == "half_open"


def test_a_supervisor_is_blamed_only_for_what_its_children_are_blamed_for() -> None:
    bench = Bench(failures=1)
    blameless = AllAgentsFailedError([Attempt("x", down("bad_request")), Attempt("y", down("context_length"))])
    bench.registry.failed("a", blameless)
    assert bench.state == "closed"
    bench.registry.failed("a", AllAgentsFailedError([Attempt("x", blameless), Attempt("y", down())]))
    assert bench.state == "open"


def test_the_95th_percentile_needs_ten_answers_and_looks_at_the_last_fifty() -> None:
    registry = HealthRegistry()
    for second in range(9):
        registry.succeeded("a", float(second))
        registry.succeeded("a", None)
    assert registry.p95("a") is None
    registry.succeeded("a", 9.0)
    assert registry.p95("a") == 9.0
    for _ in range(10):
        registry.succeeded("a", 1.0)
    assert registry.p95("a") == 8.0
    for _ in range(50):
        registry.succeeded("a", 0.5)
    assert registry.p95("a") == 0.5


@given(st.lists(st.floats(0, 100), min_size=10, max_size=50))
def test_the_95th_percentile_is_a_time_that_19_of_20_answers_kept(times: list[float]) -> None:
    registry = HealthRegistry()
    for seconds in times:
        registry.succeeded("a", seconds)
    limit = registry.p95("a")
    assert limit in times
    assert sum(seconds <= limit for seconds in times) >= 0.95 * len(times)
    assert sum(seconds < limit for seconds in times) < 0.95 * len(times)


def test_the_budget_of_hedges_is_a_share_of_the_answers() -> None:
    registry = HealthRegistry(hedge_budget=0.05)
    while registry.may_hedge():
        pass
    hedged = 0
    for _ in range(2000):
        registry.answer_started()
        hedged += registry.may_hedge()
    assert hedged == pytest.approx(100, abs=1)


def test_a_burst_of_hedges_is_bounded() -> None:
    registry = HealthRegistry(hedge_budget=1.0)
    for _ in range(1000):
        registry.answer_started()
    assert sum(registry.may_hedge() for _ in range(100)) == 10


def test_without_a_budget_there_is_no_hedge() -> None:
    registry = HealthRegistry(hedge_budget=0)
    for _ in range(100):
        registry.answer_started()
    assert not registry.may_hedge()


def test_reset_takes_everybody_in_and_keeps_the_history() -> None:
    bench = Bench()
    for _ in range(10):
        bench.registry.succeeded("a", 2.0)
    bench.fail("auth")
    bench.registry.failed("b", down("quota"))
    bench.registry.succeeded("c")
    bench.registry.reset()
    assert {child.state for child in bench.registry.snapshot().values()} == {"closed"}
    assert bench.registry.p95("a") == 2.0
    assert [change.key for change in bench.told if change.state == "closed"] == ["a", "b"]


def test_reset_of_an_unknown_child_says_which_are_known() -> None:
    bench = Bench()
    with pytest.raises(KeyError, match="none"):
        bench.registry.reset("a")
    bench.fail()
    with pytest.raises(KeyError, match="known are: a"):
        bench.registry.reset("b")


def test_a_raising_listener_harms_nobody_and_a_removed_one_hears_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    remove = bench.registry.on_change(bench.told.append)

    def broken(_: HealthChanged) -> None:
        raise ValueError("broken")

    bench.registry.on_change(broken)
    late: list[HealthChanged] = []
    bench.registry.on_change(late.append)
    bench.fail("auth")
    assert len(bench.told) == 2
    assert len(late) == 1
    assert "listener raised" in caplog.text
    remove()
    remove()
    bench.registry.reset()
    assert len(bench.told) == 3


def test_a_listener_may_reset_what_it_is_told_of() -> None:
    bench = Bench()
    bench.registry.on_change(lambda change: bench.registry.reset("a") if change.state == "open" else None)
    bench.fail("auth")
    assert bench.state == "closed"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"failures": 0}, "failures"),
        ({"failures": 2.5}, "failures"),
        ({"first_back_off": 0}, "first_back_off"),
        ({"max_back_off": -1}, "max_back_off"),
        ({"quota_back_off": "long"}, "quota_back_off"),
        ({"hedge_budget": 1.5}, "hedge_budget"),
        ({"hedge_budget": -0.1}, "hedge_budget"),
        ({"first_back_off": math.nan}, "first_back_off"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        HealthRegistry(**options)


def test_a_listener_must_be_callable() -> None:
    with pytest.raises(TypeError, match="function"):
        HealthRegistry().on_change("no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async def never(_change: object) -> None: ...

    with pytest.raises(TypeError, match="would never run"):
        HealthRegistry().on_change(never)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_default_clock_is_that_of_the_event_loop(backend: Any) -> None:
    import anyio

    registry = HealthRegistry()

    async def scenario() -> None:
        registry.failed("a", down("rate_limit", retry_after=5.0))
        await anyio.sleep(5.0)
        assert registry.state("a") == "half_open"

    run_virtual(backend, scenario)


def test_without_a_loop_the_default_clock_still_runs() -> None:
    registry = HealthRegistry()
    registry.failed("a", down("rate_limit", retry_after=1000.0))
    assert registry.state("a") == "open"


def test_a_snapshot_may_be_taken_while_another_thread_meets_new_children() -> None:
    registry = HealthRegistry(clock=lambda: 0.0)
    stop = threading.Event()

    def meet() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            registry.failed(str(number % 1000), down())

    thread = threading.Thread(target=meet)
    thread.start()
    try:
        for _ in range(30):
            registry.snapshot()
    finally:
        stop.set()
        thread.join()


# -- the model


@attrs.define
class Model:
    """What should be true of one child, in the words of the documentation."""

    failures: int = 0
    openings: int = 0
    until: float | None = None
    trial: bool = False
    since: float = 0.0

    def is_out(self, now: float) -> bool:
        return self.until is not None and not self.trial and now < self.until

    def state(self, now: float) -> str:
        if self.until is None:
            return "closed"
        return "half_open" if now >= self.until and not self.trial else "open"


class HealthMachine(RuleBasedStateMachine):
    """Any order of attempts, ends and waits, against the model."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.die = 0.5
        self.told: list[HealthChanged] = []

    @initialize(failures=st.integers(1, 4), first=st.sampled_from([1.0, 5.0]), cap=st.sampled_from([2.0, 40.0]))
    def begin(self, failures: int, first: float, cap: float) -> None:
        self.limit, self.first, self.cap = failures, first, cap
        self.registry = HealthRegistry(
            failures=failures,
            first_back_off=first,
            max_back_off=cap,
            quota_back_off=100.0,
            clock=lambda: self.now,
            chance=lambda: self.die,
        )
        self.registry.on_change(self.told.append)
        self.models = {"a": Model(), "b": Model()}
        self.known: set[str] = set()

    keys = st.sampled_from(["a", "b"])

    def expect(self, key: str, change: Callable[[Model], None], act: Callable[[], object]) -> None:
        """Do ``act``; a change is told exactly when the child went out or came back."""
        model = self.models[key]
        before, trial = model.state(self.now), model.trial
        until = model.until
        told = len(self.told)
        change(model)
        act()
        self.known.add(key)
        after = model.state(self.now)
        came_back = before != "closed" and after == "closed"
        went_out = model.until is not None and (
            before != "open" or (trial and model.until != until) or (model.until == math.inf and until != math.inf)
        )
        if came_back:
            assert [change.state for change in self.told[told:]] == ["closed"]
        elif went_out and model.until != until:
            assert [change.state for change in self.told[told:]] == ["open"]
        else:
            assert self.told[told:] == []

    @rule(key=keys)
    def start(self, key: str) -> None:
        probing = self.models[key].state(self.now) == "half_open"

        def change(model: Model) -> None:
            model.trial = model.trial or probing

        def act() -> None:
            assert self.registry.started(key) is probing

        self.expect(key, change, act)

    @rule(key=keys, seconds=st.none() | st.floats(0, 9))
    def succeed(self, key: str, seconds: float | None) -> None:
        def change(model: Model) -> None:
            if model.until is not None and seconds is not None and self.now - seconds < model.since:
                return  # asked for before it went out
            model.failures = model.openings = 0
            model.until, model.trial = None, False

        self.expect(key, change, lambda: self.registry.succeeded(key, seconds))

    @precondition(lambda self: any(model.trial for model in self.models.values()))
    @rule(key=keys)
    def abandon(self, key: str) -> None:
        if self.models[key].trial:
            self.expect(key, lambda model: setattr(model, "trial", False), lambda: self.registry.abandoned(key))

    @rule(key=keys, kind=st.sampled_from(COUNTED), asked=st.none() | st.sampled_from([0.0, 3.0]), die=st.floats(0, 1))
    def fail(self, key: str, kind: str, asked: float | None, die: float) -> None:
        self.die = die

        def change(model: Model) -> None:
            out_already = model.is_out(self.now)
            model.trial = False
            model.failures += 1
            if out_already:
                assert model.until is not None
                if asked is not None:
                    model.until = max(model.until, self.now + asked)
            elif model.failures >= self.limit or model.until is not None:
                wait = die * min(self.cap, self.first * 2**model.openings)
                model.openings += 1
                model.since = self.now
                model.until = max(model.until or -math.inf, self.now + max(asked or 0.0, wait))

        self.expect_failure(key, change, down(kind, retry_after=asked))

    @rule(
        key=keys, kind=st.sampled_from(["auth", "not_found", "quota", "rate_limit"]), asked=st.sampled_from([None, 2.0])
    )
    def fail_at_once(self, key: str, kind: str, asked: float | None) -> None:
        wait = {"quota": 100.0, "rate_limit": 10.0 if asked is None else asked}.get(kind, math.inf)

        def change(model: Model) -> None:
            model.since = model.since if model.is_out(self.now) else self.now
            model.trial = False
            model.until = max(model.until or -math.inf, self.now + wait)

        self.expect_failure(key, change, down(kind, retry_after=asked))

    def expect_failure(self, key: str, change: Callable[[Model], None], error: Exception) -> None:
        self.known.add(key)
        change(self.models[key])
        told = len(self.told)
        self.registry.failed(key, error)
        assert all(event.state == "open" and event.reason is error for event in self.told[told:])
        assert len(self.told) - told <= 1

    @rule(key=keys, kind=st.sampled_from(BLAMELESS))
    def fail_blamelessly(self, key: str, kind: str) -> None:
        self.expect_failure(key, lambda model: setattr(model, "trial", False), down(kind))

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.known)))

        def change(model: Model) -> None:
            self.models[key] = Model()

        told = len(self.told)
        was_out = self.models[key].until is not None
        change(self.models[key])
        self.registry.reset(key)
        assert len(self.told) - told == was_out

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "registry"):
            return
        snapshot = self.registry.snapshot()
        assert set(snapshot) == self.known
        for key, model in self.models.items():
            assert self.registry.state(key) == model.state(self.now)
            wait = 0.0 if model.until is None else max(0.0, model.until - self.now)
            assert self.registry.seconds_until_retry(key) == pytest.approx(wait)
            if key in snapshot:
                assert snapshot[key].failures == model.failures
                assert (snapshot[key].retry_in is None) == (model.until is None)


TestHealthMachine = HealthMachine.TestCase
TestHealthMachine.settings = searching(100, stateful_step_count=30)
