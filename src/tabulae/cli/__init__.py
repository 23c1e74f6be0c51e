"""The command line: one process, light until a command is chosen."""

from ._main import app, main

__all__ = ["app", "main"]
