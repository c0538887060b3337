"""The sweep as a program, for one mutant: every scenario, every injection, each ``--every``-th step.

Prints the first invariant that does not hold and exits with 1; with 0 when all of them hold.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import warnings
from pathlib import Path
from typing import Final

import mutant_guard  # loads hypothesis: with it, Trio's scheduler is seeded, as in the suite

sys.path.insert(0, str(Path(__file__).parent.parent))

from sweep_expected import EXPECTED, told
from sweep_scenarios import FALLBACK, SINGLE
from sweep_stories import STORIES

from micdrop_agent.testing import BACKENDS, INJECTIONS, cancel_everywhere, run_scenario

SCENARIOS: Final = (*SINGLE, *FALLBACK, *STORIES)


def sweep(every: int) -> None:
    """Raise the first error."""
    left: list[str] = []
    sys.unraisablehook = lambda hook: left.append(repr(hook.exc_value))
    warnings.simplefilter("error", ResourceWarning)
    for scenario in SCENARIOS:
        for backend in BACKENDS:
            seen, wanted = told(run_scenario(scenario, backend)), EXPECTED[scenario.__name__]
            if seen != wanted:
                raise AssertionError(f"{scenario.__name__}: {seen}, not {wanted}")
    gc.collect()
    if left:
        raise AssertionError(f"warned: {left[0]}")
    for name in sorted(INJECTIONS):
        for scenario in SCENARIOS:
            try:
                cancel_everywhere(scenario, inject=name, every=every)
            except AssertionError as error:
                raise AssertionError(f"{scenario.__name__}: {error}") from None


def main() -> None:
    """Sweep, and say what broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    mutant_guard.check()
    logging.disable(logging.CRITICAL)
    try:
        sweep(options.every)
    except Exception as error:  # noqa: BLE001 - a fault may show itself in any way
        print(f"{type(error).__name__}: {str(error).splitlines()[0]}")  # noqa: T201 - for the runner
        sys.exit(1)


if __name__ == "__main__":
    main()
