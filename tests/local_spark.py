"""One Spark session for all tests of a worker that ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tabulae.errors import MissingDependency
from tabulae.sources.engines.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = Path(__file__).with_name("spark")
"""What ``SPARK_CONF_DIR`` says in tests: it takes a third of the time, and counts the same."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A Spark session on this machine, as tabulae makes it, which stays active for all that ask for one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(SETTINGS))
        opened = spark_session()
        try:
            session = opened.__enter__()
        except MissingDependency as error:
            pytest.skip(f"{error} (tests/engines/servers.sh installs Java where it may)")
    yield session
    opened.__exit__(None, None, None)
