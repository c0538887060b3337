"""The recorded behaviour of the original, replayed: one test per vector and event loop.

``pytest tests/conformance/test_vectors.py --vectors DIR`` runs any folder of the same format.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from micdrop_agent.testing import BACKENDS
from vector_agents import missing_kind
from vector_check import Checker
from vector_run import run_vector

if TYPE_CHECKING:
    from pathlib import Path

    from micdrop_agent.testing import Backend


CONTRADICTED = {
    "fallback/factory-raises-then-next-answer": "its first answer is that of fallback/factory-raises-at-switch, whose "
    "right side says that the next child answers",
}
"""Vectors that cannot hold because another one says the opposite."""


def _marks(vector: dict[str, Any]) -> list[pytest.MarkDecorator]:
    if missing := missing_kind(vector["options"]):
        return [pytest.mark.xfail(strict=True, reason=f"there is no agent of kind {missing} yet")]
    if vector["id"] in CONTRADICTED:
        return [pytest.mark.xfail(strict=True, reason=CONTRADICTED[vector["id"]])]
    return []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder: Path = metafunc.config.option.vectors
    files = sorted(path for path in folder.rglob("*.json") if path.name != "index.json")
    if not files:
        raise pytest.UsageError(f"there are no vectors in {folder}")
    cases = []
    for path in files:
        name = path.relative_to(folder).with_suffix("").as_posix()
        vector = json.loads(path.read_text("utf-8"))
        cases.append(pytest.param(vector, id=name, marks=_marks(vector)))
    metafunc.parametrize("vector", cases)


@pytest.mark.parametrize("backend", BACKENDS)
def test_vector(vector: dict[str, Any], backend: Backend) -> None:
    missing = missing_kind(vector["options"])
    assert missing is None, f"there is no agent of kind {missing} yet"
    problems = Checker(vector, run_vector(vector, backend)).run()
    assert not problems, "\n".join([vector["description"], *problems])
