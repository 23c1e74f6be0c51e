"""The version of tabulae; the package and every release that it writes state it."""

VERSION = "0.1.0"
