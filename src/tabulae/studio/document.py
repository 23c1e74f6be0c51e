"""The spec that the studio edits: its text as last typed, and its file, which only a save writes."""

from __future__ import annotations

from pathlib import Path

from ..errors import ReleaseError
from ..release.folder import write_bytes


class Document:
    """The text of a spec between its file and a page.

    A page has lines that end in a newline alone. A file whose lines end in two characters keeps them.
    """

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ReleaseError: there is no such file, or it is not text in UTF-8.
        """
        self.path = path.resolve()
        if not self.path.is_file():
            raise ReleaseError(
                f"{path} is no file: name a spec; `tabulae init FILE` drafts one from a file of records"
            )
        self._stored = self.path.read_bytes()
        self._newline = "\r\n" if b"\r\n" in self._stored else "\n"
        try:
            self.text = _lines(self._stored.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise ReleaseError(f"{path} is not text in UTF-8: save it so") from None

    @property
    def unsaved(self) -> bool:
        """Whether the text is another than what was last read or saved."""
        return self.text != _lines(self._stored.decode("utf-8-sig"))

    @property
    def changed(self) -> bool:
        """Whether another program wrote or removed the file since it was last read or saved."""
        try:
            return self.path.read_bytes() != self._stored
        except OSError:
            return True

    def edit(self, text: str) -> None:
        """Take what was typed; the file stays as it is."""
        self.text = _lines(text)

    def save(self, *, over: bool = False) -> bool:
        """Write the file whole, or leave it: False where another program changed it, unless ``over``."""
        if self.changed and not over:
            return False
        content = self.text.replace("\n", self._newline).encode()
        try:
            write_bytes(self.path, content)
        except OSError:
            self.path.with_name(f".{self.path.name}.draft").unlink(missing_ok=True)
            raise
        self._stored = content
        return True


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
