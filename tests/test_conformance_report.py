"""Whoever replays vectors and cases reads the results with a program: pytest's own report has to hold them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parent.parent


def test_a_report_in_xml_holds_the_results_on_both_loops_and_no_error(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'temp'}", "tests/conformance", "-k", "mistral-first-message or a-01"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    suite = ET.parse(report).getroot()[0]
    names = [case.get("name", "") for case in suite.iter("testcase")]
    assert (suite.get("errors"), suite.get("failures"), suite.get("skipped")) == ("0", "0", "0")
    assert {"test_vector[bodies/mistral-first-message-asyncio]", "test_vector[bodies/mistral-first-message-trio]"} <= {
        *names
    }
    assert any("[a-01-" in name for name in names), names
