"""``[series]`` in the document, and the digest by which it names a release."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from tests.run.series import SPEC

from tabulae.release import folder
from tabulae.spec import Spec
from tabulae.spec import series as marks
from tabulae.spec.series import digest_of_sums, mark_of

HEX = st.text("0123456789abcdef", min_size=32, max_size=32)
NAMES = st.text("abc.-/", min_size=1, max_size=8).filter(lambda name: name != marks.REPORT)
WORDS = st.text(min_size=1, max_size=40).filter(lambda text: text.strip() and text.isprintable())


def test_both_rooms_name_the_files_of_a_release_alike() -> None:
    assert (marks.DESCRIPTOR, marks.REPORT, marks.SUMS) == (folder.DESCRIPTOR, folder.REPORT, folder.SUMS)


@given(st.dictionaries(NAMES, HEX, min_size=1, max_size=5), HEX, HEX)
def test_the_digest_is_of_every_line_but_the_report(sums: dict[str, str], one: str, other: str) -> None:
    def text(report: str | None) -> bytes:
        lines = sums if report is None else {**sums, marks.REPORT: report}
        return "".join(f"{lines[name]}  {name}\n" for name in sorted(lines)).encode()

    assert digest_of_sums(text(one)) == digest_of_sums(text(other)) == hashlib.sha256(text(None)).hexdigest()
    before, name = digest_of_sums(text(one)), sorted(sums)[0]
    sums[name] = "".join("0" if digit != "0" else "1" for digit in sums[name])
    assert digest_of_sums(text(one)) != before


@given(HEX, HEX, st.sampled_from(["next", "correction"]), WORDS)
def test_a_published_series_reads_back_as_it_is(release_id: str, half: str, kind: str, reason: str) -> None:
    follows = {"release_id": release_id, "sha256sums": half + half}
    text = SPEC.format(title="Town", budget="1/2")
    document = text + "\n" + tomli_w.dumps({"series": {"follows": follows, "kind": kind, "reason": reason}})
    spec = Spec.from_text(document)
    again = Spec.from_text(spec.published_text())
    assert again.series == spec.series
    assert again.digest() == spec.digest() != Spec.from_text(text).digest()
    assert again.series is not None
    assert (again.series.kind, again.series.reason) == (kind, reason)


@given(HEX, HEX)
def test_a_path_and_the_mark_of_its_folder_are_one_document(release_id: str, other: str) -> None:
    text = SPEC.format(title="Town", budget="1/2") + '\n[series]\nkind = "next"\n'
    with tempfile.TemporaryDirectory() as name:
        release = Path(name) / "release"
        release.mkdir()
        (release / marks.DESCRIPTOR).write_text(f'{{"tabulae": {{"release_id": "{release_id}"}}}}')
        (release / marks.SUMS).write_text(f"{other}{other}  {marks.DESCRIPTOR}\n")
        mark = mark_of(release)
        named = Spec.from_text(text + 'follows = "release"\n', name)
        marked = Spec.from_text(
            text + f"follows = {{ release_id = '{release_id}', sha256sums = '{mark.sha256sums}' }}\n"
        )
    assert named.digest() == marked.digest()
    assert named.published_text() == marked.published_text()
