"""Parquet files on an object store, served on this machine by moto."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs, parquet
from typer.testing import CliRunner

from tabulae.cli import app
from tabulae.errors import DataError, InvalidArgument
from tabulae.sources.failures import failure
from tabulae.sources.source import RecordSource, open_records

SECRET = "SECRET-7781"
PEOPLE = pa.table(
    {
        "sex": pa.array(["F", "M", None, "F", "f"] * 40_000).dictionary_encode(),
        "age": pa.array([1, 2, 3, None, 2] * 40_000, pa.int16()),
        "unused": pa.array([SECRET] * 200_000),
    }
)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server of the protocol S3 on this machine, with PEOPLE in the bucket census."""
    if find_spec("moto") is None:
        pytest.skip("needs moto: pip install 'tabulae[dev]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(port)
            store = fs.S3FileSystem(
                endpoint_override=address, access_key="key", secret_key=SECRET, allow_bucket_creation=True
            )
            store.create_dir("census")
            with store.open_output_stream("census/2026/people.parquet") as out:
                parquet.write_table(PEOPLE, out, row_group_size=70_000)
            with store.open_output_stream("census/damaged.parquet") as out:
                out.write(b"PAR1" + b"x" * 100)
            yield address
        finally:
            server.terminate()


def _wait(port: int) -> None:
    for _ in range(600):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("moto does not answer")


@pytest.fixture
def at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The bucket, with credentials in the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return "s3://census"


def invoke(*arguments: str) -> None:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output


def counted(source: RecordSource) -> list[tuple[object, ...]]:
    with open_records(source, [("sex", "sex"), ("age", "age")]) as records:
        found = records.group_by("c0", "c1").agg(n=records.count()).to_pyarrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=str)


def test_the_same_counts_as_of_the_same_file_on_disk(at: str, tmp_path: Path) -> None:
    file = tmp_path / "people.parquet"
    parquet.write_table(PEOPLE, file)
    assert counted(RecordSource(url=f"{at}/2026/people.parquet")) == counted(RecordSource(file))


def test_a_release_from_an_object_store_names_no_bucket(at: str, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(
        f"""
title = "People"
[source]
url = "{at}/2026/people.parquet"
[attributes.sex]
categories = ["F", "M", "f"]
null = "other"
[privacy]
definition = "zcdp"
budget = "10"
ledger = "ledger.db"
[[table]]
name = "sexes"
attributes = ["sex"]
"""
    )
    invoke("ledger", "init", str(tmp_path / "ledger.db"), "--budget", "10", "--definition", "zcdp")
    invoke("run", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"))
    table = parquet.read_table(tmp_path / "out" / "tables" / "sexes.parquet")
    assert np.abs(table["estimate"].to_numpy() - [80_000, 40_000, 40_000, 40_000]).max() < 10
    for file in tmp_path.glob("out/**/*"):
        if file.is_file():
            assert b"census" not in file.read_bytes(), file
            assert SECRET.encode() not in file.read_bytes(), file
    assert 'kind = "s3"' in (tmp_path / "out" / "spec.toml").read_text()
    invoke("check", str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "s3://census/2026/none.parquet",
            "none.parquet cannot be read: there is no such file, or no such bucket",
        ),
        ("s3://nowhere/people.parquet", "there is no such file, or no such bucket"),
        ("s3://census/damaged.parquet", "damaged.parquet cannot be read"),
    ],
)
def test_what_is_not_there_is_said_without_the_bucket(at: str, url: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        counted(RecordSource(url=url))
    assert "census" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_store_that_does_not_answer_is_named_as_such(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(DataError, match="does not answer: check AWS_ENDPOINT_URL") as caught:
        counted(RecordSource(url=f"{at}/2026/people.parquet"))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": f"s3://key:{SECRET}@census/people.parquet"}, "holds a password.*AWS_SECRET_ACCESS_KEY"),
        (
            {"url": f"s3://census/people.parquet?secret_key={SECRET}"},
            "does not name one Parquet file in a bucket",
        ),
        ({"url": "s3://census"}, "does not name one Parquet file in a bucket"),
        ({"url": "s3://census/people.csv"}, "does not name one Parquet file in a bucket"),
        ({"url": "s3://census/folder/"}, "does not name one Parquet file in a bucket"),
        ({"url": "s3://census/people.parquet", "table": "persons"}, "remove table"),
        (
            {"url": "s3://census/people.parquet", "engine": "spark"},
            "which DuckDB reads: remove kind and engine",
        ),
        ({"path": "s3://census/people.parquet"}, 'url = "s3://bucket/people.parquet"'),
    ],
)
def test_addresses_that_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as caught:
        RecordSource(**given)  # type: ignore[arg-type]
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("code", ["ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH"])
def test_a_store_that_refuses_a_key_is_told_apart(code: str) -> None:
    said = f"OSError: When reading information for key 'p' in bucket 'census': AWS Error {code} during HeadObject"
    found = failure("people.parquet", said)
    assert "the object store refuses: check AWS_ACCESS_KEY_ID" in str(found)
    assert "census" not in str(found)
