"""The last step of every run: a folder that is complete gets its report and its checksums."""

from __future__ import annotations

from pathlib import Path

from tabulae.release import Release, seal
from tabulae.release.folder import REPORT, write_bytes
from tabulae.release.place import unmark
from tabulae.report.fill import report_of


def seal_with_report(partial: Path) -> Release:
    """Seal a folder, make its report from what is sealed, and seal that with it; the release, as it was read for it."""
    unmark(partial)
    seal(partial)
    release = Release.read(partial)
    write_bytes(partial / REPORT, report_of(release).encode())
    seal(partial)
    return release
