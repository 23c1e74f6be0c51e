"""The page on R: its lines without arrow run on a release, where R is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.village import write_village

import tabulae as tb

PAGE = Path(__file__).parents[2] / "docs/guide/r.md"
R = shutil.which("Rscript")


def test_the_lines_of_the_page_read_a_release(tmp_path: Path) -> None:
    if R is None:
        pytest.skip("needs R: apt-get install r-base-core r-cran-jsonlite")
    lines = re.search(r"```r\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert lines is not None
    asked = [R, "-e", "stopifnot(requireNamespace('jsonlite', quietly = TRUE))"]
    if subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip("needs jsonlite: apt-get install r-cran-jsonlite")
    release = tb.run(write_village(tmp_path), tmp_path / "release")
    script = tmp_path / "read.R"
    script.write_text(
        lines[1] + "stopifnot(length(ledger) > 0)\ncat(sprintf('%.6f', sum(counts$estimate)))\n"
    )
    done = subprocess.run([R, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "tables/sex_by_age" in done.stdout
    total = sum(release.tables["sex_by_age"]["estimate"].to_pylist())
    assert float(done.stdout.split()[-1].removeprefix("NULL")) == pytest.approx(total, abs=1e-5)
