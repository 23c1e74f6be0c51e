"""The studio answers its own page with its own token, and refuses what is forged."""

from __future__ import annotations

import errno
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.studio.conftest import SPEC, served, village

from tabulae.studio import Studio


def asked(
    studio: Studio, method: str, path: str, body: bytes | None = None, **changed: str | None
) -> tuple[int, str, http.client.HTTPMessage]:
    """A request as the page makes it, but for ``changed``: header -> another value, or None for none."""
    place = studio.origin.removeprefix("http://")
    headers: dict[str, str | None] = {"Host": place, "Cookie": f"{studio.cookie}={studio.token}"}
    if method == "POST":
        length = str(len(body or b""))
        headers |= {"Origin": studio.origin, "Content-Type": "application/json", "Content-Length": length}
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    line = http.client.HTTPConnection(place, timeout=10)
    line.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        if value is not None:
            line.putheader(name, value)
    line.endheaders(body)
    answer = line.getresponse()
    text = answer.read().decode()
    line.close()
    return answer.status, text, answer.headers


def edited(studio: Studio, text: str) -> dict[str, Any]:
    """What is known of a text once its planning ended."""
    status, _, _ = asked(studio, "POST", "/edit", json.dumps({"text": text}).encode())
    assert status == 200
    for _ in range(3000):
        state = studio.state()
        if not state["busy"]:
            return state
        time.sleep(0.02)
    raise AssertionError("planning did not end")


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """One studio for all that is refused: nothing changes it."""
    with served(village(tmp_path_factory.mktemp("resting"))) as made:
        yield made


@pytest.fixture(scope="module")
def planning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """One studio, and one process that plans, for texts that are planned and not saved."""
    with served(village(tmp_path_factory.mktemp("planning"))) as made:
        yield made


_EDIT = json.dumps({"text": "forged"}).encode()


@pytest.mark.parametrize(
    ("method", "path", "body", "changed", "status"),
    [
        ("GET", "/", None, {"Cookie": None}, 403),
        ("GET", "/?token=guessed", None, {"Cookie": None}, 403),
        ("GET", "/?token=%C3%A9", None, {"Cookie": None}, 403),
        ("GET", "/state", None, {"Cookie": "{cookie}=guessed"}, 403),
        ("GET", "/", None, {"Host": "rebound.example:{port}"}, 403),
        ("GET", "/", None, {"Host": "localhost"}, 403),
        ("GET", "/state", None, {"Origin": "http://foreign.example"}, 403),
        ("POST", "/edit", _EDIT, {"Origin": "http://foreign.example"}, 403),
        ("POST", "/edit", _EDIT, {"Origin": None}, 403),
        ("POST", "/edit", _EDIT, {"Origin": "null"}, 403),
        ("POST", "/edit", _EDIT, {"Cookie": None}, 403),
        ("POST", "/edit", _EDIT, {"Content_Type": "text/plain"}, 415),
        ("POST", "/edit", b"", {"Content_Length": str(10**9)}, 413),
        ("POST", "/edit", b"", {"Content_Length": "9" * 5000}, 413),
        ("POST", "/edit", b"", {"Content_Length": "-1"}, 411),
        ("POST", "/edit", b"", {"Content_Length": None, "Transfer_Encoding": "chunked"}, 411),
        ("POST", "/edit", b"[" * 100_000, {}, 400),
        ("POST", "/edit", b'{"text": "\\ud800"}', {}, 400),
        ("POST", "/edit", b'{"text": 1}', {}, 400),
        ("POST", "/save", b'{"text": "a", "over": "yes"}', {}, 400),
        ("GET", "/../../../etc/passwd", None, {}, 404),
        ("GET", "/%2e%2e/people.csv", None, {}, 404),
        ("GET", "/spec.toml", None, {}, 404),
        ("GET", "/report?release=..", None, {}, 404),
        ("GET", "/report?release=%2Fetc", None, {}, 404),
        ("GET", "/report?release=", None, {}, 404),
        ("GET", "/report", None, {"Cookie": None}, 403),
        ("POST", "/run", b'{"name": "../elsewhere"}', {}, 422),
        ("POST", "/run", b'{"name": "release"}', {"Origin": None}, 403),
        ("POST", "/run", b'{"name": "release", "resume": true}', {}, 409),
        ("POST", "/run", b"{}", {}, 400),
        ("POST", "/cancel", b"{}", {}, 409),
        ("POST", "/ledger", b'{"cap": "1"}', {"Origin": "http://foreign.example"}, 403),
        ("POST", "/ledger", b'{"cap": "1"}', {}, 422),
        ("POST", "/change", b'{"op": "set", "path": "title", "value": {}}', {}, 400),
        ("POST", "/change", b'{"op": "erase", "path": ["title"], "value": 1, "version": 1}', {}, 422),
        ("POST", "/change", b'{"op": "set", "path": ["title"], "value": 1, "version": 0}', {}, 409),
        ("PUT", "/edit", None, {}, 501),
        ("OPTIONS", "/edit", None, {"Origin": "http://foreign.example"}, 501),
        ("HEAD", "/", None, {}, 501),
        ("GET", "/state", None, {"Upgrade": "websocket", "Origin": "http://foreign.example"}, 403),
        ("GET", "http://rebound.example/state", None, {"Host": "rebound.example"}, 403),
        ("GET", "//foreign.example/..%2f..%2fetc/passwd", None, {}, 404),
        ("GET", "/studio.css/../../server.py", None, {}, 404),
        ("GET", "/report?release=%252e%252e", None, {}, 404),
        ("GET", "/report?release=..%5c..", None, {}, 404),
        ("GET", "/report?release=a&release=b", None, {}, 404),
        ("GET", "/read?release=%00", None, {}, 404),
    ],
)
def test_forged_requests_are_refused_and_change_nothing(
    resting: Studio, method: str, path: str, body: bytes | None, changed: dict[str, str | None], status: int
) -> None:
    known = {"cookie": resting.cookie, "port": resting.origin.rpartition(":")[2]}
    sent = {name: value and value.format(**known) for name, value in changed.items()}
    told, text, _ = asked(resting, method, path, body, **sent)
    assert told == status
    assert resting.token not in text
    assert resting.document.text == SPEC
    assert resting.document.path.read_text() == SPEC


def test_a_link_out_of_a_release_is_not_followed(studio: Studio) -> None:
    """Neither a folder that is a link, nor a file in one that leads elsewhere."""
    folder = studio.document.path.parent
    (folder / "made").mkdir()
    (folder / "made/datapackage.json").write_text('{"tabulae": {"release_id": "1"}}')
    (folder / "made/report.html").write_text("published")
    assert asked(studio, "GET", "/report?release=made")[:2] == (200, "published")
    (folder / "linked").symlink_to(folder / "made")
    assert asked(studio, "GET", "/report?release=linked")[0] == 404
    (folder / "made/report.html").unlink()
    (folder / "made/report.html").symlink_to(folder / "spec.toml")
    status, page, _ = asked(studio, "GET", "/report?release=made")
    assert status == 404
    assert "Village" not in page
    assert '<html lang="en">' in page  # what a person opens is a page, also where it refuses


def test_the_printed_address_gives_a_cookie_that_no_script_reads(studio: Studio) -> None:
    status, _, headers = asked(studio, "GET", studio.url.removeprefix(studio.origin), Cookie=None)
    assert (status, headers["Location"]) == (303, "/")
    assert headers["Set-Cookie"] == f"{studio.cookie}={studio.token}; HttpOnly; SameSite=Strict; Path=/"
    assert studio.origin.startswith("http://127.0.0.1:")


def test_a_script_in_a_spec_stays_text(planning: Studio) -> None:
    script = "</textarea><script>alert(1)</script>"
    text = SPEC.replace('"Village"', f'"{script}"').replace('["F", "M"]', f'["F", "{script}"]')
    edited(planning, text)
    for path in ("/", "/plan", "/form?open=attributes.sex"):
        status, page, _ = asked(planning, "GET", path)
        assert status == 200
        assert script not in page
        assert "&lt;script&gt;alert(1)" in page
    policy = asked(planning, "GET", "/")[2]["Content-Security-Policy"]
    assert "'unsafe-inline'" not in policy
    assert "frame-ancestors 'none'" in policy


def test_groups_of_labels_are_a_new_file_that_the_text_names(studio: Studio) -> None:
    folder = studio.document.path.parent
    (folder / "codes").mkdir()
    (folder / "codes/broad.csv").write_text("mine\n")
    text = SPEC.replace("[recodes]", '[recodes]\nbroad = { of = "race", edges = [] }')
    version = studio.edit({"text": text})["version"]
    for _ in range(2):  # what the studio wrote it may write again
        sent = {
            "op": "group",
            "path": ["recodes", "broad"],
            "value": {"a": "x", "b": "x", "c": ""},
            "version": version,
        }
        status, told, _ = asked(studio, "POST", "/change", json.dumps(sent).encode())
        assert status == 200
        version = json.loads(told)["version"]
    assert 'broad = { of = "race", map = "codes/broad_2.csv" }' in studio.document.text
    assert (folder / "codes/broad_2.csv").read_text() == "code,class,label\na,x,x\nb,x,x\nc,c,c\n"
    assert (folder / "codes/broad.csv").read_text() == "mine\n"


def test_mistakes_have_their_lines_and_the_plan_of_the_earlier_text_stays(planning: Studio) -> None:
    whole = edited(planning, SPEC)
    assert whole["problems"] == []
    broken = SPEC.replace('attributes = ["sex", "age"]', 'attributes = ["sex", "ages"]')
    state = edited(planning, broken)
    (problem,) = state["problems"]
    assert broken.splitlines()[problem["line"] - 1] == 'attributes = ["sex", "ages"]'
    assert state["plan"] == whole["plan"]
    assert planning.document.path.read_text() == SPEC


def test_two_studios_of_one_file_do_not_write_over_each_other(tmp_path: Path) -> None:
    path = village(tmp_path)
    with served(path) as first, served(path) as second:
        for studio, text in ((first, f"# first\n{SPEC}"), (second, f"# second\n{SPEC}")):
            studio.edit({"text": text})
            asked(studio, "POST", "/save", json.dumps({"text": text}).encode())
        assert path.read_text() == f"# first\n{SPEC}"
        assert second.state()["changed"]
        assert asked(second, "POST", "/run", b'{"name": "release"}')[0] == 409


def test_a_disk_that_is_full_is_told_and_leaves_the_file(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    text = f"# more\n{SPEC}"
    studio.edit({"text": text})
    monkeypatch.setattr("tabulae.studio.document.write_bytes", full)
    status, told, _ = asked(studio, "POST", "/save", json.dumps({"text": text}).encode())
    assert (status, told) == (409, "not saved: No space left on device\n")
    assert studio.document.path.read_text() == SPEC
    assert studio.document.unsaved


@pytest.mark.long
def test_the_last_edit_wins(planning: Studio) -> None:
    for number in range(2):
        planning.edit({"text": SPEC.replace("Village", f"Edit {number}")})
    edited(planning, SPEC.replace("Village", "Last"))
    assert "<h1>Last</h1>" in planning.plan({})


def test_a_planner_that_is_ended_is_told_and_replaced(planning: Studio) -> None:
    edited(planning, SPEC)
    planning._planner.busy = True
    planning._planner._process.kill()
    planning._planner._process.join()
    (problem,) = planning.state()["problems"]
    assert "ended" in problem["message"]
    assert edited(planning, SPEC)["problems"] == []


def test_only_save_writes_and_not_over_another_program(studio: Studio) -> None:
    path: Path = studio.document.path
    text = f"# a remark\n{SPEC}"
    studio.edit({"text": text})
    assert path.read_text() == SPEC
    asked(studio, "POST", "/save", json.dumps({"text": text}).encode())
    assert path.read_text() == text
    path.write_text("# elsewhere\n")
    _, told, _ = asked(studio, "POST", "/save", json.dumps({"text": text}).encode())
    assert json.loads(told)["changed"]
    assert path.read_text() == "# elsewhere\n"
    asked(studio, "POST", "/save", json.dumps({"text": text, "over": True}).encode())
    assert path.read_text() == text
    assert asked(studio, "POST", "/save", json.dumps({"text": SPEC}).encode())[0] == 409
