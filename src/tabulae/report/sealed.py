"""The last step of every run: a folder that is complete gets its report and its checksums."""

from __future__ import annotations

from pathlib import Path

from ..release import Release, seal
from ..release.folder import REPORT, write_bytes
from ..release.place import unmark
from .fill import report_of


def seal_with_report(partial: Path) -> Release:
    """Seal a folder, make its report from what is sealed, and seal that with it; the release, as it was read for it."""
    unmark(partial)
    seal(partial)
    release = Release.read(partial)
    write_bytes(partial / REPORT, report_of(release).encode())
    seal(partial)
    return release
