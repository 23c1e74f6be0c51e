"""Other releases of a ledger that follow the same one: recorded in a folder, and told in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..privacy import RELATIONS, Charge
from ..spec import Series
from ..spec.marks import is_release_id

_SHORT = 12  # digits of a release id that tell releases apart well enough
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Rival:
    """A release that follows the same one as another release does.

    ``kind`` says how, ``"next"`` or ``"correction"``. Id, title, and ``date`` of its charge are None unless it was
    published.

    Privacy:
        Nothing depends on a record. Of what is not published no name is given away.
    """

    kind: str
    release_id: str | None = None
    title: str | None = None
    date: str | None = None

    @classmethod
    def read(cls, told: object) -> Rival:
        """A rival as a descriptor has it.

        Raises:
            TypeError: it is not in the form that releases have.
        """
        if not isinstance(told, Mapping):
            raise TypeError("a release that follows the same one is no table of its keys")
        rival = cls(**told)
        named = (
            is_release_id(rival.release_id)
            and isinstance(rival.title, str)
            and isinstance(rival.date, str)
            and _DATE.fullmatch(rival.date) is not None
        )
        nameless = (rival.release_id, rival.title, rival.date) == (None, None, None)
        if rival.kind not in RELATIONS or not (named or nameless):
            raise TypeError("a release that follows the same one is told in another form than releases do")
        return rival

    def sentence(self, kind: str) -> str:
        """What to know of it in a release that follows the same one as its ``kind``, without a full stop.

        >>> Rival("next").sentence("next").split(": ")[1]
        'the series forks here'
        """
        named = "another release that is not published yet"
        if self.release_id is not None:
            named = f"{self.title!r} ({self.release_id[:_SHORT]}), charged {self.date}"
        if self.kind == "next":
            return f"the release that this one follows is followed by {named}: the series forks here"
        if kind == "correction":
            return f"the release that this one corrects is corrected by {named}: it has two corrections"
        return f"the release that this one follows was corrected by {named}: its figures are not the last"


def rivals_of(series: Series | None, charges: Sequence[Charge], own: str | None = None) -> Iterator[Rival]:
    """The other releases that follow the same one, where readers should know of them.

    The next release of one that is corrected is none.

    Args:
        series: of the release.
        charges: of its ledger.
        own: its id, where it is charged.
    """
    if series is None:
        return
    for charge in charges:
        if charge.follows != series.follows.release_id or charge.state == "void" or charge.release_id == own:
            continue
        if charge.relation is None or not matters(series.kind, charge.relation):
            continue
        if charge.state == "published":
            yield Rival(charge.relation, charge.release_id, charge.title, charge.time[:10])
        else:
            yield Rival(charge.relation)


def matters(kind: str, other: str) -> bool:
    """Whether readers of a release that follows as ``kind`` should know of one that follows as ``other``.

    >>> matters("correction", "next"), matters("next", "correction")
    (False, True)
    """
    return kind == "next" or other == "correction"
