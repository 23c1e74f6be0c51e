"""The report of a release: one self-contained page, made from the release folder's public content alone."""

from tabulae.report.fill import report_of, view_of
from tabulae.report.pictures import picture_of
from tabulae.report.render import render_report
from tabulae.report.sealed import seal_with_report
from tabulae.report.view import (
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
