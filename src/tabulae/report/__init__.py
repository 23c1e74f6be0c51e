"""The report of a release: one self-contained page, made from the release folder's public content alone."""

from .fill import report_of, view_of
from .pictures import picture_of
from .render import render_report
from .sealed import seal_with_report
from .view import (
    BlockView,
    Consequences,
    EpsilonStatement,
    ExactView,
    ExpectedError,
    LedgerLine,
    MatrixPicture,
    Promise,
    ReleaseView,
    StrategyView,
    TableView,
)

__all__ = [
    "BlockView",
    "Consequences",
    "EpsilonStatement",
    "ExactView",
    "ExpectedError",
    "LedgerLine",
    "MatrixPicture",
    "Promise",
    "ReleaseView",
    "StrategyView",
    "TableView",
    "picture_of",
    "render_report",
    "report_of",
    "seal_with_report",
    "view_of",
]
