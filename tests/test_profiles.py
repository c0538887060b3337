"""The profiles of Hypothesis: the same examples each time in CI, more of them over night, a clock in none."""

from __future__ import annotations

import pytest
from hypothesis import settings
from property_support import quickly, searching

PROFILES = ("ci", "dev", "soak")


@pytest.mark.parametrize("name", PROFILES)
def test_no_profile_fails_a_test_for_being_slow_and_each_says_how_to_repeat_a_failure(name: str) -> None:
    profile = settings.get_profile(name)

    assert profile.deadline is None
    assert profile.print_blob


def test_ci_tries_the_same_examples_each_time_and_the_others_do_not() -> None:
    assert [settings.get_profile(name).derandomize for name in PROFILES] == [True, False, False]
    assert settings.get_profile("ci").database is None


def test_a_profile_that_searches_longer_does_so_in_slow_tests_too() -> None:
    chosen = settings.get_current_profile_name()
    try:
        found = []
        for name in PROFILES:
            settings.load_profile(name)
            found.append(searching(60).max_examples)
    finally:
        settings.load_profile(chosen)

    assert found == [60, 60, 1200]
    assert quickly.deadline is None
