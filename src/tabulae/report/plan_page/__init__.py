"""The plan page: a plan as one self-contained HTML page, on which the budget can be moved. No record is read."""

from .page import check_target, plan_page, plan_view, write_plan_page

__all__ = ["check_target", "plan_page", "plan_view", "write_plan_page"]
