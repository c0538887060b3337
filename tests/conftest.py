"""Options of the test suite, and where its helper modules are found."""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings  # with it loaded, Trio's scheduler is seeded: sweeps repeat themselves

_HERE = Path(__file__).parent
# The suite is imported with --import-mode=importlib, which finds no neighbours by itself.
sys.path[:0] = [str(_HERE), str(_HERE / "conformance")]
if importlib.util.find_spec("micdrop_agent") is None:
    # A fresh checkout, nothing installed: the suite is about the code beside it.
    sys.path.insert(0, str(_HERE.parent))

# Thousands of clients are made here, and each reads the certificates of every authority there is, which takes 40 ms.
# All servers of the tests are on this machine, so one certificate will do; it is nobody's, its key is thrown away.
os.environ["SSL_CERT_FILE"] = str(_HERE / "nobody.pem")

# How long the property tests search: --hypothesis-profile NAME, or HYPOTHESIS_PROFILE=NAME. None has a deadline
# (that is a clock, and machines are busy), and each prints what repeats a failure.
_ALWAYS = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", _ALWAYS, max_examples=100, derandomize=False)  # other examples each time
settings.register_profile("ci", _ALWAYS, max_examples=100, derandomize=True, database=None)  # the same each time
settings.register_profile("soak", _ALWAYS, max_examples=2000, derandomize=False)  # for a night
if settings.get_current_profile_name() in {"default", "ci"}:  # not where a plugin has chosen one of its own
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--vectors", type=Path, metavar="DIR", help="replay the vectors in DIR in place of ours")
    parser.addoption("--cases", type=Path, metavar="DIR", help="replay the bug cases in DIR in place of ours")


@pytest.fixture(scope="module", autouse=True)
def _what_there_is_before_a_module_is_not_collected_in_it() -> None:
    """Hundreds of tests collect garbage, and would walk through a million objects of pytest and of the SDKs for it.

    What is no garbage when a module begins is set aside. At the end of the run all of it is looked at again, so
    that a leak which shows only then is still seen.
    """
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()
