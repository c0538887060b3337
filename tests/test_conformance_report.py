"""Whoever replays vectors and cases reads the results with a program: pytest's own report has to hold them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parent.parent


def test_a_report_in_xml_holds_the_results_on_both_loops_and_no_error(tmp_path: Path) -> None:
    # Few of each in folders of their own: to find all of ours takes longer than to replay these.
    report, vectors, cases = tmp_path / "report.xml", tmp_path / "vectors", tmp_path / "cases"
    (vectors / "bodies").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "vectors" / "bodies" / "mistral-first-message.json", vectors / "bodies")
    for name in ("a-01-comment-keepalives", "b-17-reused-call-ids", "d-05-consumer-leaves-early"):
        shutil.copytree(ROOT / "tests" / "cases" / name, cases / name)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'temp'}", f"--vectors={vectors}", f"--cases={cases}", "tests/conformance"],
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
