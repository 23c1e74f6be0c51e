"""Spark's session: the one that the surroundings have set up, or a local one, with nothing of it open to others.

What Spark says of its work may quote records, so that nothing of it reaches the terminal: its own logs are off, the
output of its Java process is closed once it runs, and the errors that it raises are for the caller to redact.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..errors import (
    InvalidArgument,
    MissingDependency,
    Unsupported,
    require,
)
from ..memory import read_memory
from .java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.executor.syncLogLevel.enabled": "true",
    "spark.speculation": "false",
    "spark.io.encryption.enabled": "true",
    "spark.driver.maxResultSize": "0",
}
_LOCALLY = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.authenticate": "true",
}
# What expressions mean, which a session may have set otherwise.
_MEANING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.orderByOrdinal": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
}
_SPEAKERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_FOLDER = "spark.local.dir"
_LEAST_HEAP = 512
_LAST_LINES = 3
_PATIENCE = 20  # seconds


@contextmanager
def spark_session(memory: str | None = None) -> Iterator[SparkSession]:
    """A Spark session, in the time zone UTC, without a web page of its own and without tasks run twice for speed.

    Where a session is active in this process it is used and left running, with the settings that it had. Otherwise one
    is made from what ``spark-submit``, ``SPARK_CONF_DIR`` or ``SPARK_HOME`` say, on this machine (``local[*]``) where
    nothing says another master, and ends with its process. What a session made here spills to disk is encrypted.

    Args:
        memory: the most that Spark's process on this machine takes, such as "4GB", where the session is made here.

    Raises:
        InvalidArgument: the memory is not written so, or is too little.
        MissingDependency: without PySpark or without Java.
        Unsupported: the session would be of Spark Connect.
    """
    require("pyspark", "spark", "counting on Spark")
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote() or "SPARK_REMOTE" in os.environ:
        raise Unsupported(
            "Spark Connect keeps its settings and errors on a server, where they cannot be redacted: unset "
            "SPARK_REMOTE, and run tabulae with spark-submit, or with a master in spark-defaults.conf"
        )
    with _silent():
        if (active := SparkSession.getActiveSession()) is not None:
            with _meant(active):
                yield active
            return
        with _surroundings_kept(), _java(memory):
            session = _made()
            try:
                with _meant(session):
                    yield session
            finally:
                _stop(session)


def heap(memory: str) -> int:
    """Of the memory that a process may take, the part that Java may fill with objects: in units of 2^20 bytes.

    A quarter is left for what Java has beside them (code, buffers, threads) and for Python.

    >>> heap("4GB")
    2861

    Raises:
        InvalidArgument: it is not written as a number with a unit, or is too little.
    """
    size = read_memory(memory) * 3 // 4 >> 20
    if size < _LEAST_HEAP:
        raise InvalidArgument(
            f"Spark needs a memory of 0.72 GB or more, and here it would have {memory}: give it more"
        )
    return size


def _made() -> SparkSession:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    # Workers must be the same Python, with the same packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf()  # with what files and the command line say, which Java has read
    conf.setIfMissing("spark.master", "local[*]")
    settings = {"spark.app.name": "tabulae", **_ALWAYS}
    if re.fullmatch(r"local(\[[^\[\]]*\])?", str(conf.get("spark.master"))):
        settings |= _LOCALLY
        conf.setIfMissing("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
    for key, value in settings.items():
        conf.set(key, value)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    updates: Any = session.sparkContext._accumulatorServer
    updates.handle_error = lambda *_: None  # it prints a traceback where Spark's process ends
    return session


@contextmanager
def _java(memory: str | None) -> Iterator[None]:
    """Java for a session: what runs already, or one that ends with the session, and its memory and files with it."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tabulae-spark-", ignore_cleanup_errors=True) as folder:
        gateway = _started(memory)
        SparkContext._ensure_initialized(gateway=gateway)
        if gateway.jvm.System.getProperty(_FOLDER) is None and "SPARK_LOCAL_DIRS" not in os.environ:
            gateway.jvm.System.setProperty(_FOLDER, folder)  # of this user alone, for what Spark spills
        try:
            yield
        finally:
            SparkContext._gateway = SparkContext._jvm = None
            _end(gateway)


def _started(memory: str | None) -> Any:
    """Start Java, and listen to what it says until it is up: of records it knows nothing until then."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False)
    if memory is not None:
        conf.set("spark.driver.memory", f"{heap(memory)}m")
    ear, mouth = os.pipe()
    try:
        with java_home():
            return launch_gateway(conf, {"stdout": mouth, "stderr": mouth})
    except PySparkRuntimeError:
        os.set_blocking(ear, False)
        said = os.read(ear, 1 << 16).decode(errors="replace").strip().splitlines()
        last = " | ".join(said[-_LAST_LINES:]) or "nothing"
        raise MissingDependency(f"Spark did not start. The last that its Java said: {last}") from None
    finally:
        os.close(ear)
        os.close(mouth)


def _end(gateway: Any) -> None:
    """Close the connection to Java and its input, at which it ends; make an end of it where it does not."""
    with suppress(Exception):  # it may be gone
        gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


@contextmanager
def _meant(session: SparkSession) -> Iterator[None]:
    """The session with the settings of `_MEANING`, and afterwards with those that it had."""
    before: Mapping[str, str | None] = {key: session.conf.get(key, None) for key in _MEANING}
    for key, value in _MEANING.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        with suppress(Exception):  # of a session that is gone, nothing need be put back
            for key, value in before.items():
                if value is None:
                    session.conf.unset(key)
                else:
                    session.conf.set(key, value)


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing of PySpark's own loggers, which print statements and errors with values in them."""
    from pyspark.logger import PySparkLogger

    nobody = logging.NullHandler()
    heard = logging.getLogger()  # where the bridge to Java tells of a connection that broke
    loggers = [PySparkLogger.getLogger(name) for name in _SPEAKERS]
    before = [logger.disabled for logger in loggers]
    heard.addHandler(nobody)
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        heard.removeHandler(nobody)
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


@contextmanager
def _surroundings_kept() -> Iterator[None]:
    """What a session changes of this process besides itself, put back: its path of modules, and what Control-C does."""
    path = list(sys.path)
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main else None
    try:
        yield
    finally:
        sys.path[:] = path
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


def _stop(session: SparkSession) -> None:
    """Stop the session, also one whose Java process is gone."""
    from py4j.protocol import Py4JError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with suppress(Py4JError, OSError):
            session.stop()
