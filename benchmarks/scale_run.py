"""One release of areas by what `tabulae run` calls, in a process of its own: time, memory and disk of each stage.

python -m benchmarks.scale_run SPEC OUT [--memory 20GB]       prints one JSON object a stage

A stage begins with the line that the run says of it. A peak is the largest resident set of the process during a stage,
with what it kept from earlier ones; disk is the most that lay in the folder of OUT, the input not counted. Seconds of
CPU are of all threads.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.detailed_nation import Disk
from benchmarks.state_run import peak_mb

import tabulae as tb
from tabulae.release.progress import Progress

STAGES = {
    "planning": "plan",
    "counting": "count",
    "charging": "measure",
    "estimating": "read measurements",
    "reading the measurements": "read measurements",
    "gls: ": "gls",
    "bluedown: least squares": "bluedown, up",
    "bluedown: dividing": "bluedown, down",
    "topdown: ": "topdown",
    "writing tables": "write",
    "writing the report": "report",
}


@dataclass
class Stages:
    """What each stage took, as the lines of a run come in.

    Attributes:
        folder: where the run writes.
        found: name -> wall and CPU seconds, peak in MB and disk in GB; a stage that comes twice is added up.
    """

    folder: Path
    found: dict[str, dict[str, float]] = field(default_factory=dict)
    name: str = "read the spec"

    def begin(self) -> None:
        """Forget the peak, and look at the clocks and the disk from here on."""
        Path("/proc/self/clear_refs").write_text("5")
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._disk = Disk(self.folder)
        self._disk.__enter__()

    def end(self) -> None:
        """Keep what was spent since."""
        self._disk.__exit__()
        spent = {"wall_s": time.perf_counter() - self._wall, "cpu_s": time.process_time() - self._cpu}
        most = {"peak_mb": peak_mb(), "disk_gb": self._disk.peak / 1e9}
        before = self.found.setdefault(self.name, dict.fromkeys((*spent, *most), 0.0))
        before.update({key: before[key] + value for key, value in spent.items()})
        before.update({key: max(before[key], value) for key, value in most.items()})

    def said(self, progress: Progress) -> None:
        """A step of the run: perhaps the next stage."""
        line = progress.step
        name = next((stage for start, stage in STAGES.items() if line.startswith(start)), self.name)
        print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
        if name != self.name:
            self.end()
            self.name = name
            self.begin()


def main() -> int:
    """Run, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--memory", default=None, help="as of tabulae run")
    given = parser.parse_args()
    stages = Stages(given.out.parent)
    stages.begin()
    try:
        tb.run(given.spec, given.out, say=stages.said, memory=given.memory)
    finally:
        stages.end()
    for name, row in stages.found.items():
        print(json.dumps({"stage": name, **{key: round(value, 3) for key, value in row.items()}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
