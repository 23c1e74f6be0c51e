"""A server for one person on one machine: it answers those who hold its token, and no other page.

Four things are checked of every request, whatever it asks for: the name that the server was called by (a foreign name
that resolves to this machine is refused), the page that asks, the token, and the size of what is sent.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import jinja2

from ..report.page import script
from .document import Document
from .planner import Answer, Planner

_HOST = "127.0.0.1"
_LARGEST = 1 << 20  # bytes of a request
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FRAMED = "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"  # a plan's page carries its own policy besides
_HTML = "text/html; charset=utf-8"


class Refused(Exception):
    """A request that is not answered."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status = status


class Studio:
    """A spec on a local page, with its plan beside it.

    Privacy:
        Opens no record. Of the ledger the plan's page says what is left. It listens on this machine alone.
    """

    def __init__(self, path: Path, port: int = 0) -> None:
        """Listen, at a free port where none is given, and begin with the plan.

        Raises:
            ReleaseError: there is no such file, or it is not text in UTF-8.
            OSError: the port is taken.
        """
        self.token = secrets.token_urlsafe(32)
        self.document = Document(path)
        self._server = _Server((_HOST, port), _Handler)
        self._server.studio = self
        self.origin = f"http://{_HOST}:{self._server.server_port}"
        self.cookie = f"tabulae-{self._server.server_port}"  # cookies do not tell ports apart
        self._lock = threading.Lock()
        self._planner = Planner(self.document.path.parent)
        self._answer = Answer(last=False)
        self._page, self._version = "", 0
        self._planner.ask(self.document.text)

    @property
    def url(self) -> str:
        """What to open in a browser."""
        return f"{self.origin}/?token={self.token}"

    def serve(self) -> None:
        """Answer until interrupted."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stop listening, and planning."""
        self._server.server_close()
        self._planner.close()

    def stop(self) -> None:
        """End :meth:`serve` from another thread."""
        self._server.shutdown()

    def page(self) -> str:
        """The page itself, with the text as it was last typed."""
        with self._lock:
            text, name = self.document.text, self.document.path.name
        return _templates().get_template("studio.html").render(text=text, name=name)

    def plan(self) -> str:
        """The page of the last plan."""
        with self._lock:
            return self._page

    def edit(self, text: str) -> dict[str, Any]:
        """Take what was typed and plan it."""
        with self._lock:
            self.document.edit(text)
            self._answer = Answer(last=False)
            self._planner.ask(self.document.text)
        return self.state()

    def save(self, text: str, *, over: bool) -> dict[str, Any]:
        """Write the file, unless another program changed it."""
        with self._lock:
            if text != self.document.text:
                raise Refused(
                    HTTPStatus.CONFLICT, "the text to save is not the last that was typed: type again"
                )
            try:
                self.document.save(over=over)
            except OSError as error:
                raise Refused(HTTPStatus.CONFLICT, f"not saved: {error.strerror or error}") from None
        return self.state()

    def state(self) -> dict[str, Any]:
        """What the page shows besides the text."""
        with self._lock:
            for answer in self._planner.answers():
                self._answer = answer
                if answer.page:
                    self._page, self._version = answer.page, self._version + 1
            return {
                "busy": not self._answer.last,
                "problems": [asdict(problem) for problem in self._answer.problems],
                "plan": self._version,
                "unsaved": self.document.unsaved,
                "changed": self.document.changed,
            }


def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("tabulae.studio"), autoescape=True, undefined=jinja2.StrictUndefined
    )


def _file(name: str) -> str:
    return _templates().get_template(name).render()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    studio: Studio


class _Handler(BaseHTTPRequestHandler):
    """One request: checked, then answered."""

    timeout = 10
    server: _Server
    server_version, sys_version = "tabulae", ""
    _pages: ClassVar[dict[str, tuple[str, str, Callable[[Studio], str]]]] = {
        "/": (_HTML, _POLICY, Studio.page),
        "/plan": (_HTML, _FRAMED, Studio.plan),
        "/state": ("application/json", _POLICY, lambda studio: json.dumps(studio.state())),
        "/studio.js": ("text/javascript; charset=utf-8", _POLICY, lambda _: _file("studio.js")),
        "/studio.css": (
            "text/css; charset=utf-8",
            _POLICY,
            lambda _: str(script("report.css")) + _file("studio.css"),
        ),
    }

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_POST(self) -> None:
        self._answered(self._post)

    def log_message(self, *_: Any) -> None:
        """Nothing: the terminal is the user's, and an address carries the token."""

    def _answered(self, answer: Callable[[], None]) -> None:
        try:
            self._check_place()
            answer()
        except Refused as error:
            self._send(error.status, "text/plain; charset=utf-8", _POLICY, f"{error}\n")

    def _check_place(self) -> None:
        """The name that the server was called by, and the page that asks."""
        studio = self.server.studio
        if self.headers.get_all("Host") != [studio.origin.removeprefix("http://")]:
            raise Refused(HTTPStatus.FORBIDDEN, "this server answers to its own address alone")
        origins = self.headers.get_all("Origin", [])
        if any(origin != studio.origin for origin in origins) or (self.command == "POST" and not origins):
            raise Refused(HTTPStatus.FORBIDDEN, "another page may not ask here")

    def _check_cookie(self) -> None:
        studio = self.server.studio
        try:
            sent = SimpleCookie(self.headers.get("Cookie", "")).get(studio.cookie)
        except CookieError:
            sent = None
        if sent is None or not _same(sent.value, studio.token):
            raise Refused(HTTPStatus.FORBIDDEN, "open the address that `tabulae studio` printed")

    def _get(self) -> None:
        studio, asked = self.server.studio, urlsplit(self.path)
        tokens = parse_qs(asked.query).get("token", [])
        if asked.path == "/" and len(tokens) == 1 and _same(tokens[0], studio.token):
            cookie = f"{studio.cookie}={studio.token}; HttpOnly; SameSite=Strict; Path=/"
            self._send(HTTPStatus.SEE_OTHER, _HTML, _POLICY, "", {"Location": "/", "Set-Cookie": cookie})
            return
        self._check_cookie()
        if asked.path not in self._pages:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such page")
        kind, policy, content = self._pages[asked.path]
        self._send(HTTPStatus.OK, kind, policy, content(studio))

    def _post(self) -> None:
        self._check_cookie()
        studio, sent = self.server.studio, self._sent()
        text, over = sent.get("text"), sent.get("over", False)
        if not isinstance(text, str) or not isinstance(over, bool):
            raise Refused(HTTPStatus.BAD_REQUEST, "a text is wanted, as JSON")
        if self.path == "/edit":
            state = studio.edit(text)
        elif self.path == "/save":
            state = studio.save(text, over=over)
        else:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such page")
        self._send(HTTPStatus.OK, "application/json", _POLICY, json.dumps(state))

    def _sent(self) -> dict[str, Any]:
        """The JSON object that was sent, if it is not too large."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "a request says how long it is")
        if len(length) > len(str(_LARGEST)) or int(length) > _LARGEST:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a spec has {_LARGEST} bytes at most here")
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a request is JSON")
        try:
            sent = json.loads(self.rfile.read(int(length)))
            json.dumps(sent, ensure_ascii=False).encode()  # half a character cannot be saved
        except (ValueError, RecursionError):
            raise Refused(HTTPStatus.BAD_REQUEST, "this is not JSON") from None
        if not isinstance(sent, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "this is not an object of JSON")
        return sent

    def _send(
        self, status: HTTPStatus, kind: str, policy: str, content: str, more: dict[str, str] | None = None
    ) -> None:
        body = content.encode()
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
            **(more or {}),
        }
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _same(given: str, token: str) -> bool:
    """Compared in a time that tells nothing of where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())
