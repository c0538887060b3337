"""The fixtures that pytest has wherever the library is installed, and what loading them costs everybody else."""

from __future__ import annotations

import importlib
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import micdrop_agent.testing
from micdrop_agent.testing import Cassette, CassetteError
from micdrop_agent.testing._mode import DefaultMode

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., pytest.RunResult]

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
ENTRY_POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][
    "pytest11"
]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs tests in a process of their own, as in an environment in which the library is installed."""
    lines = [f"{name} = {module}" for name, module in ENTRY_POINTS.items()]
    installed = pytester.mkdir("as_installed-1.dist-info")
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: as-installed\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)

    def run(code: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(code)
        # Other plugins of this environment may be out of date.
        strict = ("-W", "error", "-W", "default::pytest.PytestDeprecationWarning")
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *strict, *options)

    return run


def test_the_entry_point_names_a_module_that_exists() -> None:
    assert [importlib.import_module(module) for module in ENTRY_POINTS.values()]


def test_each_fixture_serves_a_test_on_both_loops(run: Run) -> None:
    done = run(
        """
        import anyio
        import sniffio
        from micdrop_agent import ChatAgent
        from micdrop_agent.testing import say

        def test_an_agent(run_virtual, scripted_provider, assert_no_leaks):
            async def scenario():
                async with assert_no_leaks(), scripted_provider(say("We open ", "at nine.")) as server:
                    async with ChatAgent(
                        model="m", api_key="k", base_url=server.base_url, connect=server.connect
                    ) as agent:
                        agent.add_user_message("When do you open?")
                        await anyio.sleep(3600)
                        return (await agent.answer().wait()).text

            assert run_virtual(scenario) == "We open at nine."

        def test_where(run_virtual, micdrop_backend):
            async def name():
                return sniffio.current_async_library()

            assert run_virtual(name, time_limit=1.0) == micdrop_backend
        """,
        "-v",
    )
    done.assert_outcomes(passed=4)
    # A plugin may choose the order.
    done.stdout.fnmatch_lines_random(["*test_an_agent?asyncio?*", "*test_an_agent?trio?*"])


RIGHT_AND_WRONG = """
    import anyio
    from micdrop_agent import Agent

    class Right(Agent):
        async def generate_answer(self, turn):
            await turn.write("One ")
            await anyio.sleep(1)
            await turn.write("two.")

    class Wrong(Agent):
        async def generate_answer(self, turn):
            if hasattr(self, "kept"):
                self.kept.write_nowait("late")
            await turn.write("One ")
            try:
                await anyio.sleep(1)
            finally:
                turn.write_nowait("and another thing")
                self.kept = turn

    def test_right(interrupt_everywhere):
        assert interrupt_everywhere(Right, "Count!").points > 50

    def test_right_with_one_injection(interrupt_everywhere):
        assert 10 < interrupt_everywhere(Right, "Count!", inject="cancel").points < 50

    def test_wrong(interrupt_everywhere):
        interrupt_everywhere(Wrong)
"""


def test_a_wrong_agent_fails_with_the_invariant_and_the_step_and_a_right_one_passes(run: Run) -> None:
    done = run(RIGHT_AND_WRONG)

    done.assert_outcomes(passed=4, failed=2)
    done.stdout.re_match_lines([r".*InvariantError: invariant 2: .*late.*\(undisturbed on asyncio\)"])


def test_a_project_may_choose_one_loop(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture
        def micdrop_backend():
            return "trio"
        """
    )
    run("def test_once(run_virtual): pass").assert_outcomes(passed=1)


def test_without_trio_its_half_is_skipped(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys; sys.modules['trio'] = None")

    done = run("def test_once(run_virtual): pass", "-rs")
    done.assert_outcomes(passed=1, skipped=1)
    done.stdout.fnmatch_lines(["*Trio is not installed, so this runs on asyncio alone; run: pip install *"])


CASSETTE = """
    import anyio
    import pytest
    from micdrop_agent import ChatAgent
    from micdrop_agent.testing import Cassette, ScriptedProvider, say, talk

    async def ask(cassette, connect=None):
        if connect is not None:
            cassette.upstream = connect
        async with ChatAgent(model="m", api_key="k", base_url="http://m.test/v1", connect=cassette.connect) as agent:
            return (await talk(agent, "When?")).text

    async def record_or_play(cassette):
        async with ScriptedProvider([say("At nine.")]) as server:
            return await ask(cassette, server.connect)

    @pytest.mark.parametrize("number", ["a b", "c"])
    def test_one(run_virtual, cassette, number):
        assert run_virtual(record_or_play, cassette) == "At nine."

    @pytest.mark.cassette("other", speed=0)
    def test_two(run_virtual, cassette):
        assert run_virtual(record_or_play, cassette) == "At nine."
"""


def test_the_fixture_of_cassettes_and_their_mode(run: Run, pytester: pytest.Pytester) -> None:
    run(CASSETTE, "--strict-markers").assert_outcomes(passed=6)
    folder = pytester.path / "cassettes"
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.jsonl"))
    name = next(pytester.path.glob("test_*.py")).stem
    assert files == sorted([f"{name}/test_one-a_b.jsonl", f"{name}/test_one-c.jsonl", "other.jsonl"])

    (folder / "other.jsonl").unlink()
    done = run(CASSETTE, "--cassette-mode=replay")
    done.assert_outcomes(passed=4, errors=2)
    done.stdout.fnmatch_lines(["*there is no cassette *other.jsonl; record it with *--cassette-mode=record"])


def test_the_mode_of_the_option_holds_where_a_cassette_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DefaultMode, "mode", "record")
    assert Cassette(tmp_path / "a.jsonl").recording
    with pytest.raises(CassetteError, match="there is no cassette"):
        Cassette(tmp_path / "a.jsonl", "replay")


def test_a_project_that_uses_no_fixture_pays_for_no_part_of_the_test_kit(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # what other plugins load is their business
    done = run(
        """
        import sys

        def test_what_is_loaded():
            assert "micdrop_agent.testing._plugin" in sys.modules
            heavy = {"hypothesis", "trio", "httptools", "httpx2", "openai", "cattrs", "ssl", "asyncio"}
            kit = {name for name in sys.modules if name.startswith("micdrop_agent.testing._")}
            assert kit == {"micdrop_agent.testing._plugin"}
            assert not any(name.startswith(("micdrop_agent.providers.", "micdrop_agent.fallback")) for name in sys.modules)
            assert not heavy & sys.modules.keys()
        """,
        *("-p", ENTRY_POINTS["micdrop_agent"]),
    )
    done.assert_outcomes(passed=1)


def test_the_kit_lists_its_names_and_refuses_others() -> None:
    assert dir(micdrop_agent.testing) == sorted(micdrop_agent.testing.__all__)
    assert all(getattr(micdrop_agent.testing, name) is not None for name in micdrop_agent.testing.__all__)
    with pytest.raises(AttributeError, match=r"micdrop_agent\.testing.*no_such_name"):
        micdrop_agent.testing.no_such_name  # noqa: B018  # asking is the test
