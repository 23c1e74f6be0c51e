"""One entry for all kinds of spec: of tables, of groups, and of areas."""

from __future__ import annotations

from os import PathLike

from ..spec import Spec, read_spec
from .areas.plan import GeographyPlan, plan_geography
from .groups.plan import DetailedPlan, plan_detailed
from .tables.plan import Plan, check_derived, plan_tables


def plan(spec: Spec | str | PathLike[str]) -> Plan | DetailedPlan | GeographyPlan:
    """Plan a release and say how wrong its counts will be; no data is opened.

    Arguments:
        spec: a spec, or the path of its TOML document.

    Returns:
        For a spec of tables a :class:`Plan`, with the strategy chosen; for one with ``[detailed]`` a
        :class:`DetailedPlan`, with a budget for each level; for one with ``[geography]`` a :class:`GeographyPlan`, with
        the errors of each kind of area.

    Raises:
        SpecError: the document has mistakes; all are listed. Also where its invariants determine every table, or leave
            nobody whom "replace-within-invariants" would protect.
        Unsupported: the method cannot serve these tables, or asks for more noisy answers than can be kept.

    Privacy:
        Reads no record: a plan is a function of the public spec, and costs nothing.

    >>> import tabulae as tb
    >>> tb.plan("missing.toml")
    Traceback (most recent call last):
    tabulae.errors.SpecError: missing.toml: 1 mistake
      document: cannot be read: No such file or directory; check the path
    """
    spec = spec if isinstance(spec, Spec) else read_spec(spec)
    if spec.geography is not None:
        return plan_geography(spec)
    if spec.detailed is not None:
        return plan_detailed(spec)
    made = plan_tables(spec)
    check_derived(made)
    return made
