"""The recorded behaviour of the original, replayed: one test per vector and event loop.

``pytest tests/conformance/test_vectors.py --vectors DIR`` runs any folder of the same format.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from collect import roots, understood, vector_files
from micdrop_agent.testing import BACKENDS
from server_check import ServerChecker
from server_run import run_server_vector
from vector_agents import is_of_the_server
from vector_check import Checker
from vector_run import run_vector

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

_OURS = Path(__file__).parent.parent / "vectors"
_OWN = Path(__file__).parent / "own_vectors"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    files = vector_files(roots(metafunc.config.option.vectors, _OURS, _OWN))
    metafunc.parametrize("path", [pytest.param(path, id=name) for name, path in files.items()])


@pytest.mark.parametrize("backend", BACKENDS)
def test_vector(path: Path, backend: Backend, request: pytest.FixtureRequest) -> None:
    vector = understood(path, "verdict", "script", "expected")
    checker: Checker | ServerChecker
    if is_of_the_server(vector):
        checker = ServerChecker(vector, run_server_vector(vector, backend))
    else:
        checker = Checker(vector, run_vector(vector, backend))
    problems = checker.run()
    for words in checker.not_checked:
        # As record_property does, which fails under --junitxml because xunit2 has no properties of a test.
        request.node.user_properties.append(("not checked", words))
    assert not problems, "\n".join([vector.get("description", ""), *problems])
