"""What is read of the part of a document that only one kind of release has: the seam between documents and products.

Readers of sections, here and in products, take what they need of: ``document``, its sections as read; ``schema``, the
domain, and the names that could not be read; ``base``, the folder that paths are relative to; and ``problems``, where
mistakes are recorded. They return None where there are some.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..privacy import PrivacyLoss
from .problems import Problems
from .promise import Method, Promise
from .schema import Schema
from .sections import Document
from .series import Mark

if TYPE_CHECKING:
    from ..domain import Figure

Kind = Literal["tables", "groups", "areas"]
"""The kinds of release: each is the name of a folder of :mod:`tabulae.products`."""


@dataclass(frozen=True)
class Section:
    """The section of one kind, read without a mistake.

    Attributes:
        parts: attributes of the :class:`~tabulae.spec.Spec` that it gives.
        files: content of the files that it names, under their published names.
        figures: derived figures (:class:`~tabulae.spec.derived.Derived`) that follow from its tables.
        listed: whether these files stand in the published copy's list of files; tables name theirs one by one.
        marks: of the earlier releases whose counts it equals.
    """

    parts: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)
    listed: bool = True
    figures: tuple[Any, ...] = ()
    marks: tuple[Mark, ...] = ()

    def loss(self, cap: PrivacyLoss, problems: Problems) -> PrivacyLoss | None:
        """What the release costs, of what ``[privacy]`` says: all of it, or the sum of budgets of the section."""
        return cap

    def check_figure(self, figure: Figure) -> None:
        """Refuse a derived figure that this kind of release cannot have."""

    def figure_rows(self, figure: Figure, areas: tuple[str, ...]) -> int:
        """How many rows a derived figure has."""
        return figure.rows


def kind_of_document(document: Document) -> Kind:
    """Which kind of release a document asks for."""
    return "groups" if document.is_detailed else "areas" if document.is_geography else "tables"


def read_section(
    document: Document,
    schema: Schema,
    promise: Promise | None,
    method: Method | None,
    base: Path,
    problems: Problems,
) -> Section | None:
    """The section of the document's kind, by the reader of its product, or None with the reasons noted.

    Products stand above documents, so the reader is found by the name of its folder.
    """
    product = import_module(f"tabulae.products.{kind_of_document(document)}.spec")
    return product.read_section(document, schema, promise, method, base, problems)
