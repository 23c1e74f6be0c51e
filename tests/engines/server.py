"""A PostgreSQL server of the tests' own: Debian's programs, in a folder of its own, reached by a socket there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

USER = "tabulae"
GUARDED = "guarded"
"""A user who is asked for a password, where tests make one of this name."""

_PLACES = "/usr/lib/postgresql/*/bin"
_OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "20",
    "shared_buffers": "32MB",
    "log_statement": "all",  # so that tests can look for what must not be told to a server's log
    "log_min_messages": "info",
}


def programs() -> Path | None:
    """The folder of initdb and pg_ctl, of the newest version that is installed."""
    found = sorted(Path("/").glob(f"{_PLACES[1:]}/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    named = shutil.which("initdb")
    return None if named is None else Path(named).resolve().parent


class Server:
    """Starts at once. No network: whoever may enter the folder of the socket may connect."""

    def __init__(self, where: Path) -> None:
        self._programs, self._account = where, _unprivileged()
        self.folder = Path(tempfile.mkdtemp(prefix="tabulae-pg-"))
        if self._account is not None:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        make = ("--no-sync", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--no-locale")
        self._run("initdb", *make, "--pgdata", str(self._data))
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"local all {GUARDED} scram-sha-256\nlocal all all trust\n")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = " ".join(f"-c {key}='{value}'" for key, value in _OPTIONS.items())
        self._run(
            *("pg_ctl", "start", "--wait", "--silent", "--pgdata", str(self._data)),
            *("--log", str(self._log), "--options", f"-k {self.folder} {options}"),
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it: "fast" ends sessions first, "immediate" is as if it crashed."""
        self._run("pg_ctl", "stop", "--wait", "--silent", "--mode", mode, "--pgdata", str(self._data))

    def remove(self) -> None:
        """Stop it, where it runs, and take its folder away."""
        if (self._data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder)

    def url(self, database: str = "postgres", user: str = USER) -> str:
        """How a spec names it."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    @property
    def log(self) -> str:
        """All that it has logged so far: every statement, and every error."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        if self._account is not None:
            who = (f"--reuid={self._account.pw_uid}", f"--regid={self._account.pw_gid}", "--clear-groups")
            command = ["setpriv", *who, *command]
        surroundings = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=surroundings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"


def _unprivileged() -> pwd.struct_passwd | None:
    """Whom the server runs as, where this is root, as which PostgreSQL does not run."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("no account without privileges: neither postgres nor nobody")
