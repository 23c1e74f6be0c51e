"""The report of a release: one self-contained page, made from the release folder's public content alone."""

from .page import render_report
from .report import report_of, seal_with_report, view_of
from .strategy import picture_of
from .view import (
    BlockView,
    Consequences,
    EpsilonStatement,
    ExactView,
    ExpectedErrorView,
    LedgerLine,
    MatrixPicture,
    PromiseView,
    ReleaseView,
    StrategyView,
    TableView,
)

__all__ = [
    "BlockView",
    "Consequences",
    "EpsilonStatement",
    "ExactView",
    "ExpectedErrorView",
    "LedgerLine",
    "MatrixPicture",
    "PromiseView",
    "ReleaseView",
    "StrategyView",
    "TableView",
    "picture_of",
    "render_report",
    "report_of",
    "seal_with_report",
    "view_of",
]
