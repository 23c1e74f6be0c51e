"""A cluster of Spark's own on this machine: a master and workers, each a process, and executors that these start.

``python -m tests.engines.standalone SPEC OUT DIE`` is a driver: it makes a release, or finishes it where one was begun,
with noise that follows from a seed; prints each line of progress; and kills itself soon after one that begins with DIE.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.net.frozen import frozen

import tabulae as tb
from tabulae.release.progress import Progress
from tabulae.sources.engines.spark import java_home

ROOT = Path(__file__).parents[2]
STAGES = (
    "counting the records",
    "reading the measurements",
    "gls: least squares up",
    "gls: least squares down",
    "bluedown: least squares up",
    "bluedown: dividing",
)
"""How the lines of progress begin in which executors are at work."""

QUIET = """
rootLogger.level = off
rootLogger.appenderRef.one.ref = console
appender.one.type = Console
appender.one.name = console
"""
"""The log4j2.properties of a cluster whose executors keep no logs: they listen to no driver in this."""

_SETTINGS = """
spark.master                       spark://127.0.0.1:{port}
spark.driver.host                  127.0.0.1
spark.driver.bindAddress           127.0.0.1
spark.driver.memory                {memory}m
spark.executor.memory              {memory}m
spark.executor.extraJavaOptions    -XX:+UseSerialGC -XX:TieredStopAtLevel=1
spark.driver.extraJavaOptions      -XX:+UseSerialGC -XX:TieredStopAtLevel=1
spark.sql.shuffle.partitions       4
spark.task.maxFailures             8
spark.executorEnv.PYTHONPATH       {path}
"""
_PATIENCE, _LIVES_ON = 60, 0.3  # seconds
_DEPLOY = "org.apache.spark.deploy"


@dataclass
class Standalone:
    """A master, its workers, and the drivers that were started on them.

    Attributes:
        folder: for settings and what workers keep; it is removed with the test.
        environment: of all processes.
        port: of the master, on loopback.
        memory: megabytes of each worker, of its executor and of a driver's Java.
        peaks: name of a process -> the most megabytes that one of that name held, as far as ``look`` saw.
        spent: (number, name) of a process -> its seconds of CPU, as far as ``look`` saw.
    """

    folder: Path
    environment: dict[str, str]
    port: int
    memory: int
    master: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    peaks: dict[str, int] = field(default_factory=dict)
    spent: dict[tuple[int, str], float] = field(default_factory=dict)

    @classmethod
    def start(cls, folder: Path, workers: int, memory: int) -> Standalone:
        """A master that answers, and so many workers of one core each."""
        import pyspark

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
        (folder / "spark-defaults.conf").write_text(_SETTINGS.format(port=port, path=path, memory=memory))
        (folder / "log4j2.properties").write_text(QUIET)
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "OPENBLAS_NUM_THREADS": "1",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_CONF_DIR": str(folder),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "PYSPARK_PYTHON": sys.executable,
        }
        options = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        master = _java(f"{_DEPLOY}.master.Master", *options, env=environment)
        made = cls(folder, environment, port, memory, master)
        try:
            made._answers()
            for _ in range(workers):
                made.add_worker()
        except BaseException:
            made.stop()
            raise
        return made

    def _answers(self) -> None:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.1)
        raise AssertionError("the master did not start")

    def add_worker(self) -> None:
        options = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1")
        options += (
            "--memory",
            f"{self.memory}m",
            "--work-dir",
            str(self.folder / "work"),
            f"spark://127.0.0.1:{self.port}",
        )
        self.workers.append(_java(f"{_DEPLOY}.worker.Worker", *options, env=self.environment))

    def kill_worker(self) -> None:
        """End the oldest worker, its executors and their processes of Python at once; a new one takes its place."""
        oldest = self.workers.pop(0)
        self.look()
        for number in sorted(family(oldest.pid)):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        oldest.wait()
        self.add_worker()

    def look(self) -> None:
        """Note the most that each process has held so far, and the CPU that it took."""
        for number in family(os.getpid()) - {os.getpid()}:
            told, times = _read(number, "status"), _read(number, "stat").rpartition(")")[2].split()
            if times and (held := re.search(r"VmHWM:\s+(\d+) kB", told)):
                name = _name(_read(number, "cmdline").split("\0"))
                self.peaks[name] = max(self.peaks.get(name, 0), int(held[1]) >> 10)
                self.spent[number, name] = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")

    def drive(self, spec: Path, out: Path, *, die: str = "", struck: bool = False) -> tuple[int, list[str]]:
        """Run a driver to its end: how it ended, and what it said.

        Args:
            die: where it kills itself.
            struck: whether a worker is killed as each stage begins.
        """
        command = (sys.executable, "-m", "tests.engines.standalone", str(spec), str(out), die)
        lines: list[str] = []
        left = list(STAGES) if struck else []
        with subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, text=True
        ) as driver:
            assert driver.stdout is not None
            for line in driver.stdout:
                lines.append(line.rstrip())
                self.look()
                if left and line.startswith(left[0]):
                    del left[0]
                    self.kill_worker()
        return driver.returncode, lines

    def stop(self) -> None:
        """End all that was started."""
        for process in (*self.workers, self.master):
            for number in sorted(family(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.wait()


@contextmanager
def standalone(folder: Path, workers: int = 2, memory: int = 512) -> Iterator[Standalone]:
    """A cluster for as long as the context lasts.

    Args:
        memory: megabytes of each worker, of its executor and of a driver's Java.

    Raises:
        MissingDependency: there is no Java that fits.
    """
    with java_home():
        cluster = Standalone.start(folder, workers, memory)
        try:
            yield cluster
        finally:
            cluster.stop()


def _java(main: str, *options: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    command = (f"{env['SPARK_HOME']}/bin/spark-class", main, *options)
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def family(ancestor: int) -> set[int]:
    """A process and all that come of it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        fields = _read(int(path.name), "stat").rpartition(")")[2].split()
        if fields:
            parents[int(path.name)] = int(fields[1])
    found = {ancestor}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _read(number: int, name: str) -> str:
    try:
        return Path(f"/proc/{number}/{name}").read_text(errors="replace")
    except OSError:  # it has ended
        return ""


def _name(command: list[str]) -> str:
    """What a process is, in a word."""
    told = " ".join(command)
    for words, name in (
        ("CoarseGrainedExecutorBackend", "executor"),
        (f"{_DEPLOY}.worker.Worker", "worker"),
        (f"{_DEPLOY}.master.Master", "master"),
        (f"{_DEPLOY}.SparkSubmit", "Java of the driver"),
        ("tests.engines.standalone", "driver"),
        ("pyspark.daemon", "Python of an executor"),
    ):
        if words in told:
            return name
    return "other"


def published(out: Path) -> dict[str, str]:
    """Digests of everything in a release that is a number: measurements, tables, microdata."""
    files = [*out.glob("measurements/*.parquet"), *out.glob("tables/*"), *out.glob("*.parquet")]
    found = {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert len(found) > 10
    return found


def main(spec: Path, out: Path, die: str) -> None:
    """Make the release, or finish it."""

    def said(progress: Progress) -> None:
        sys.stdout.write(f"{progress}\n")
        sys.stdout.flush()
        if die and progress.step.startswith(die):
            threading.Timer(_LIVES_ON, os.kill, (os.getpid(), signal.SIGKILL)).start()

    with frozen("standalone"):
        tb.run(spec, out, resume=out.with_name(f".{out.name}.partial").exists(), say=said)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
