"""Faults that users of other systems reported, replayed: wire (A), requests (B), scenarios (C, D).

``pytest tests/conformance/test_cases.py --cases DIR`` runs any folder of the same format.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import strict_rules

from case_request import run_request_case
from case_run import compare_backends, run_way
from case_variants import ways
from case_wire import run_wire_case
from collect import case_folders, each, read, roots, understood, unknown_folders, whole
from micdrop_agent.testing import BACKENDS

if TYPE_CHECKING:
    from types import ModuleType

    from micdrop_agent.testing import Backend

_OURS = Path(__file__).parent.parent / "cases"
_OWN = Path(__file__).parent / "own_cases"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folders = case_folders(roots(metafunc.config.option.cases, _OURS, _OWN))
    if "wire_case" in metafunc.fixturenames:
        found = [folder for folder in folders if (folder / "wire.json").exists()]
        metafunc.parametrize("wire_case", [pytest.param(folder, id=folder.name) for folder in found])
    if "request_case" in metafunc.fixturenames:
        found = [folder for folder in folders if (folder / "request.json").exists()]
        metafunc.parametrize(("request_case", "dialect"), list(each(found, _requests, 2)))
    if "way" in metafunc.fixturenames:
        found = [folder for folder in folders if (folder / "scenario.json").exists()]
        found += unknown_folders(roots(metafunc.config.option.cases, _OURS, _OWN))
        metafunc.parametrize(("way", "backend"), list(each(found, _scenarios, 2)))


def _requests(folder: Path) -> list[Any]:
    case = read(folder / "request.json", "given", "dialects")
    return [pytest.param(case, dialect, id=f"{folder.name}-{dialect}") for dialect in case["dialects"]]


def _scenarios(folder: Path) -> list[Any]:
    scenario = read(folder / "scenario.json", "steps", "expect")
    request = folder / "request.json"
    given_tools = read(request, "given")["given"]["tools"] if request.exists() else None
    if any(step["do"] == "run_all" for step in scenario["steps"]):
        return [pytest.param((folder, scenario), "all", id=folder.name)]
    return [
        pytest.param(way, backend, id=f"{folder.name}-{way.name}-{backend}")
        for way in ways(scenario, given_tools)
        for backend in scenario.get("backends", BACKENDS)
    ]


@pytest.fixture(scope="module")
def strict(request: pytest.FixtureRequest) -> ModuleType:
    return strict_rules.load(request.config.option.cases)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_provider_sends_is_understood(wire_case: Path, backend: Backend, strict: ModuleType) -> None:
    problems = run_wire_case(wire_case, backend, strict)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_sent_is_taken_by_a_strict_provider(
    request_case: Any, dialect: str, backend: Backend, strict: ModuleType
) -> None:
    problems = run_request_case(whole(request_case), dialect, strict, backend)
    assert not problems, "\n".join(problems)


def test_a_scenario_ends_as_it_must(way: Any, backend: Any, strict: ModuleType) -> None:
    problems = _all_backends(*way) if backend == "all" else run_way(whole(way), backend, strict)
    assert not problems, "\n".join(problems)


def _all_backends(folder: Path, scenario: dict[str, Any]) -> list[str]:
    found = {}
    for step in scenario["steps"]:
        for pattern in step["cases"].split(","):
            for path in sorted(folder.parent.glob(f"{pattern.strip()}/scenario.json")):
                if path.parent != folder:
                    found[path.parent.name] = understood(path)
    return compare_backends(found, scenario["expect"]["equal_across"])
