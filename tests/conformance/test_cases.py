"""Faults that users of other systems reported, replayed: wire (A), requests (B), scenarios (C, D).

``pytest tests/conformance/test_cases.py --cases DIR`` runs any folder of the same format.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from case_agents import class_of
from case_request import DIALECTS, run_request_case
from case_run import compare_backends, run_way
from case_variants import ways
from case_wire import run_wire_case
from micdrop_agent.testing import BACKENDS

if TYPE_CHECKING:
    from types import ModuleType

    from case_variants import Way
    from micdrop_agent.testing import Backend

_HERE = Path(__file__).parent.parent / "cases"


def _strict_provider(folder: Path) -> ModuleType:
    """The rules of strict providers: those of the folder, or our copy."""
    path = folder / "strict_provider.py"
    path = path if path.exists() else _HERE / "strict_provider.py"
    spec = importlib.util.spec_from_file_location("strict_provider", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return data


def _expected_failure(kind: str) -> list[pytest.MarkDecorator]:
    if class_of(kind) is not None:
        return []
    return [pytest.mark.xfail(strict=True, reason=f"there is no agent for {kind} yet")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    root: Path = metafunc.config.option.cases
    folders = sorted(path for path in root.iterdir() if (path / "case.md").exists() or list(path.glob("*.json")))
    if not folders:
        raise pytest.UsageError(f"there are no cases in {root}")
    if "wire_case" in metafunc.fixturenames:
        found = [folder for folder in folders if (folder / "wire.json").exists()]
        params = [
            pytest.param(f, id=f.name, marks=_expected_failure(_read(f / "wire.json").get("protocol", "fallback")))
            for f in found
        ]
        metafunc.parametrize("wire_case", params)
    if "request_case" in metafunc.fixturenames:
        params = [param for folder in folders if (folder / "request.json").exists() for param in _requests(folder)]
        metafunc.parametrize(("request_case", "dialect"), params)
    if "way" in metafunc.fixturenames:
        params = [param for folder in folders if (folder / "scenario.json").exists() for param in _scenarios(folder)]
        metafunc.parametrize(("way", "backend"), params)


def _requests(folder: Path) -> list[Any]:
    case = _read(folder / "request.json")
    found = []
    for dialect in case["dialects"]:
        kind = DIALECTS.get(dialect, ("unknown", {}))[0]
        marks = _expected_failure(kind) if dialect in DIALECTS else []
        found.append(pytest.param(case, dialect, id=f"{folder.name}-{dialect}", marks=marks))
    return found


def _scenarios(folder: Path) -> list[Any]:
    scenario = _read(folder / "scenario.json")
    kind = "fallback" if isinstance(scenario.get("provider"), dict) else "chat"
    request = folder / "request.json"
    given_tools = _read(request)["given"]["tools"] if request.exists() else None
    if any(step["do"] == "run_all" for step in scenario["steps"]):
        return [pytest.param((folder, scenario), "all", id=folder.name, marks=_expected_failure("fallback"))]
    return [
        pytest.param(way, backend, id=f"{folder.name}-{way.name}-{backend}", marks=_expected_failure(kind))
        for way in ways(scenario, given_tools)
        for backend in scenario.get("backends", BACKENDS)
    ]


@pytest.fixture(scope="module")
def strict(request: pytest.FixtureRequest) -> ModuleType:
    return _strict_provider(request.config.option.cases)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_provider_sends_is_understood(wire_case: Path, backend: Backend) -> None:
    problems = run_wire_case(wire_case, backend)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_sent_is_taken_by_a_strict_provider(
    request_case: dict[str, Any], dialect: str, backend: Backend, strict: ModuleType
) -> None:
    problems = run_request_case(request_case, dialect, strict, backend)
    assert not problems, "\n".join(problems)


def test_a_scenario_ends_as_it_must(way: Any, backend: Any, strict: ModuleType) -> None:
    problems = _all_backends(*way) if backend == "all" else _one(way, backend, strict)
    assert not problems, "\n".join(problems)


def _one(way: Way, backend: Backend, strict: ModuleType) -> list[str]:
    return run_way(way, backend, strict)


def _all_backends(folder: Path, scenario: dict[str, Any]) -> list[str]:
    found = {}
    for step in scenario["steps"]:
        for pattern in step["cases"].split(","):
            for path in sorted(folder.parent.glob(f"{pattern.strip()}/scenario.json")):
                if path.parent != folder:
                    found[path.parent.name] = _read(path)
    return compare_backends(found, scenario["expect"]["equal_across"])
