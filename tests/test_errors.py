"""Every error of the library survives a copy and a trip through pickle, with its facts."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from micdrop_agent import (
    AllAgentsFailedError,
    Attempt,
    CallInUseError,
    MaxStepsError,
    MicdropError,
    ProviderError,
    StoreError,
    ToolError,
    ToolInputError,
)
from micdrop_agent.store import CallMovedError, UnknownCallError
from micdrop_agent.wire import WireError

ERRORS: list[MicdropError] = [
    MicdropError("text"),
    ProviderError(
        "text", kind="rate_limit", status=429, code="slow_down", retry_after=1.5, provider="x", text_sent=True
    ),
    MaxStepsError(5, provider="x"),
    AllAgentsFailedError([Attempt("a", ProviderError("text", kind="server")), Attempt("b", ValueError("no"))]),
    ToolError("no table is free"),
    ToolInputError("city: missing"),
    StoreError("text"),
    CallInUseError("7", "pid 9"),
    UnknownCallError("7"),
    CallMovedError("7"),
    WireError("[3].role", "is missing"),
]


def facts(error: BaseException) -> Any:
    kept = {name: value for name, value in vars(error).items() if name != "attempts"}
    attempts = [(each.agent, facts(each.error)) for each in getattr(error, "attempts", ())]
    return type(error), str(error), error.args, kept, attempts


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_after_a_copy(error: MicdropError) -> None:
    error.add_note("while booking")
    for twin in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert twin is not error
        assert facts(twin) == facts(error)


def test_every_error_class_is_tried() -> None:
    def below(cls: type[MicdropError]) -> set[type[MicdropError]]:
        return {cls}.union(*(below(each) for each in cls.__subclasses__()))

    tried = {type(error) for error in ERRORS}
    ours = {cls for cls in below(MicdropError) if cls.__module__.startswith("micdrop_agent.")}
    assert {cls.__name__ for cls in ours - tried} <= {"CallRefusedError"}  # of an optional part
