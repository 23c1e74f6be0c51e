"""The report of a release: one self-contained page, made from the release folder's public content alone."""

from .page import render_report
from .promise import Consequences, EpsilonStatement, ExactView, LedgerLine, PromiseView
from .report import report_of, seal_with_report, view_of
from .rows import ExpectedErrorView, TableView
from .strategy import picture_of
from .view import BlockView, MatrixPicture, ReleaseView, StrategyView

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
