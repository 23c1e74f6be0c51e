"""The ledger: a budget, and everything that was spent of it.

One SQLite file beside the data. It is charged before noise is drawn, in exact fractions, under a lock
that two processes cannot both hold; it refuses what its cap does not cover. What a release states exactly
is entered together with its charge, before it is read. Its entries are only ever added to, and chained by
hashes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from ...errors import BudgetRefused, InvalidArgument, LedgerError, ReleaseError, TabulaeError
from ..loss.definitions import WITHIN, PrivacyLoss, change_words, check_neighbours
from ..loss.exact_numbers import Exact
from . import store
from .history import (
    OUTCOMES,
    RELATIONS,
    Charge,
    Disclosure,
    VerifiedChain,
    charges_of,
    delta_of,
    disclosures_of,
    read_cap,
    read_charge,
    read_loss,
    write_loss,
)
from .store import START, ChainedEntry, altered, link, verify

_ID_LENGTH = 32
_DIGEST_BYTES = 32
_LIST = re.compile(
    r"\[\n\s*([^][{}]*?)\n\s*\]"
)  # of plain values, shown on one line; strings hold no line break


Promise = tuple[str, str, str]
"""Definition, neighbours and unit: losses add up only where all three are the same."""


class Ledger:
    """A budget with a cap, its definition of privacy, its neighbours and its unit; and its history.

    Made by ``Ledger.create`` and ``Ledger.open``. An object holds no lock and no open file.

    Privacy: sequential composition, exact in fractions: the sum of all charges never exceeds the cap;
    for approximate privacy both epsilon and delta are capped. What was disclosed exactly stands outside the sum:
    the promise of the whole ledger is about what the disclosures of all its releases, taken together, leave open
    (Subspace Differential Privacy, Proposition 2.9).

    >>> import tempfile; from tabulae.privacy.loss.definitions import ZCDP
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger.create(f"{folder}/ledger.db", 1, definition="zcdp")
    ...     charge = ledger.charge(ZCDP("1/10"), "add-remove", "person", "demo", bytes(32))
    ...     ledger.spent, ledger.remaining
    (Fraction(1, 10), Fraction(9, 10))
    """

    def __init__(
        self,
        path: Path,
        budget: PrivacyLoss,
        neighbours: str,
        unit: str,
        view: VerifiedChain,
        dated: datetime | None = None,
    ) -> None:
        self.path = path
        self.budget = budget
        self.neighbours = neighbours
        self.unit = unit
        self._view = view
        self._dated = dated

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        budget: PrivacyLoss | Exact,
        definition: str | None = None,
        *,
        neighbours: str = "add-remove",
        unit: str = "person",
        delta: Exact | None = None,
    ) -> Ledger:
        """Create a ledger file; its cap, definition, neighbours and unit never change.

        Args:
            path: a file that does not exist yet.
            budget: a loss; or epsilon or rho, with its definition.
            definition: ``"pure"``, ``"approx"`` or ``"zcdp"``; needed unless the budget is a loss.
            neighbours: as of :func:`tabulae.privacy.check_neighbours`. ``"replace-within-invariants"`` is one record
                replaced such that every count disclosed from this ledger, by whichever release, stays as it is.
            unit: what one neighbour differs by.
            delta: the cap on delta, for ``"approx"``.

        Raises:
            InvalidArgument: a budget that cannot be read.
            LedgerError: the path exists or cannot be written.

        Privacy: none is spent.
        """
        cap = read_cap(budget, definition, delta)
        if not unit.strip():
            raise InvalidArgument('unit is empty; name what one neighbour differs by, such as "person"')
        key = os.urandom(32)
        content = {
            "definition": cap.definition,
            "budget": write_loss(cap),
            "neighbours": check_neighbours(neighbours),
            "unit": unit,
            "key_digest": hashlib.sha256(key).hexdigest(),
            "time": _now(),
        }
        where = Path(path)
        store.create(where, key, link(0, "created", content, START))
        return cls.open(where)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        anchor: str | None = None,
        *,
        dated: datetime | None = None,
        write: bool = False,
    ) -> Ledger:
        """Open a ledger and verify its whole chain; where another process holds it, that is told at once.

        Args:
            path: the file.
            anchor: a head seen earlier (from a release, say), which the chain must contain.
            dated: the time that all entries made through this object say; None is the clock at each.
            write: also see that it can be written now: a run asks before it counts, and not after.

        Raises:
            LedgerError: no such file, not a ledger, held, altered, or older than the anchor.

        Privacy: none is spent; a ledger that was edited, cut or rolled back behind the anchor is refused. How long
        records are counted depends on them, and the entries of a release are published, and the hash of the entry
        before them: a run dates all its entries by when it began, before it opened the records.
        """
        where = Path(path)
        with store.connect(where, write=write, patience=store.AT_ONCE) as connection:
            rows = store.rows_from(connection, 0)
            key = store.key_of(connection, where)
            if not rows or rows[0].kind != "created":
                raise altered(str(where), "its first entry is missing")
            verify(rows, 0, START, str(where))
            store.check_seal(connection, key, rows[-1], where)
        first = rows[0].content()
        if first["key_digest"] != hashlib.sha256(key).hexdigest():
            raise altered(str(where), "its key was replaced")
        if anchor is not None and all(row.hash != anchor for row in rows):
            raise altered(
                str(where), "it does not contain the anchored head, so it is an older copy or another ledger"
            )
        budget = read_loss(first["definition"], first["budget"])
        return cls(where, budget, first["neighbours"], first["unit"], VerifiedChain().advance(rows), dated)

    @property
    def definition(self) -> str:
        """``"pure"``, ``"approx"`` or ``"zcdp"``."""
        return self.budget.definition

    @property
    def promise(self) -> Promise:
        """Its definition, neighbours and unit."""
        return self.definition, self.neighbours, self.unit

    @property
    def spent(self) -> Fraction:
        """The epsilon or rho charged so far."""
        return self._refresh().spent

    @property
    def spent_delta(self) -> Fraction:
        """The delta charged so far; 0 unless the definition is approximate."""
        return self._refresh().spent_delta

    @property
    def remaining(self) -> Fraction:
        """The epsilon or rho left."""
        return self.budget.amount - self.spent

    @property
    def remaining_delta(self) -> Fraction:
        """The delta left; 0 unless the definition is approximate."""
        return delta_of(self.budget) - self.spent_delta

    @property
    def head(self) -> str:
        """The hash of the last entry, which stands for the whole history."""
        return self._refresh().head

    def charge(
        self,
        loss: PrivacyLoss,
        neighbours: str,
        unit: str,
        title: str,
        digest: bytes,
        disclosures: Sequence[Disclosure] = (),
    ) -> Charge:
        """Spend a loss, durably, before any noise is drawn for it or any exact count is read.

        The release id is a keyed hash of the digest and a fresh nonce: it says nothing about the data
        to whoever does not hold this file. The charge and the exact disclosures of its release become durable in
        one transaction: neither ever stands without the other.

        Args:
            loss: what is spent; of the ledger's definition.
            neighbours: of the release; the ledger's.
            unit: of the release; the ledger's.
            title: the name of the release.
            digest: the caller's SHA-256 of spec, strategy and data fingerprint (32 bytes).
            disclosures: every table that the release states exactly.

        Raises:
            BudgetRefused: the cap does not cover the loss, or the release is of another kind.
            InvalidArgument: no disclosures, where neighbours are defined by them.
            LedgerError: the ledger cannot be read or written, or was altered.

        Privacy: sequential composition (Dwork et al. 2006; Bun and Steinke 2016, Lemma 1.7): the
        losses charged add up, and their exact sum never exceeds the cap. An exact disclosure has no finite loss and
        adds nothing to the sum: it narrows what the sum promises. After several releases the promise is about the
        null space of all disclosed rows stacked (Subspace Differential Privacy, Proposition 2.9), or, under
        ``"replace-within-invariants"``, about the pairs of records that agree on all of them.
        """
        if not isinstance(digest, bytes) or len(digest) != _DIGEST_BYTES:
            raise InvalidArgument("digest must be the 32 bytes of a SHA-256")
        _check_kind(self, loss, neighbours, unit)
        _check_disclosures(self, disclosures)
        with store.connect(self.path, write=True) as connection:
            view, key = self._verified(connection)
            _check_cap(self, view, loss)
            nonce = os.urandom(16)
            release_id = _release_id(key, digest, nonce)
            content = {
                "release_id": release_id,
                "nonce": nonce.hex(),
                "definition": loss.definition,
                "loss": write_loss(loss),
                "title": title,
                "time": self._time(),
            }
            rows = [link(view.sequence + 1, "charge", content, view.head)]
            for disclosure in disclosures:
                content = {"release_id": release_id, **disclosure.content(), "time": self._time()}
                rows.append(link(rows[-1].sequence + 1, "disclosure", content, rows[-1].hash))
            store.append(connection, key, rows)
        self._view = view.advance(rows)
        return read_charge(rows[0])

    def settle(self, release_id: str, outcome: str) -> None:
        """Record that a charged release was ``"published"`` or is ``"void"``; what it spent stays spent.

        Raises:
            InvalidArgument: another outcome.
            LedgerError: no such release, or one that was settled otherwise.

        Privacy: none is spent or given back.
        """
        if outcome not in OUTCOMES:
            raise InvalidArgument(f'outcome is {outcome!r}; it must be "published" or "void"')

        def check(charge: Charge) -> bool:
            if charge.state not in ("charged", outcome):
                raise LedgerError(f"release {release_id} is {charge.state} and cannot become {outcome}")
            return charge.state == "charged"

        self._append(outcome, release_id, check)

    def follow(self, release_id: str, follows: str, relation: str) -> None:
        """Record which release of this ledger a charged one follows; the same said again changes nothing.

        Args:
            release_id: the release.
            follows: the id of the one that it follows.
            relation: ``"next"``, or ``"correction"`` of the one that it follows.

        Raises:
            InvalidArgument: another relation.
            LedgerError: no such release, one that is settled, or follows another, or in another way; or the one that
                it follows is not published, or was not charged before it.

        Privacy: none is spent or given back.
        """
        if relation not in RELATIONS:
            raise InvalidArgument(f'relation is {relation!r}; it must be "next" or "correction"')
        before = self._one(self._rows(), follows)

        def check(charge: Charge) -> bool:
            if (charge.follows, charge.relation) == (follows, relation):
                return False
            if (charge.follows, charge.relation) != (None, None):
                raise LedgerError(
                    f"release {release_id} is the {charge.relation} of {charge.follows} already"
                )
            if charge.state != "charged":
                raise LedgerError(
                    f"release {release_id} is {charge.state}: what it follows cannot be said any more"
                )
            if before.sequence >= charge.sequence or before.state != "published":
                raise LedgerError(
                    f"release {release_id} cannot follow {follows}, which is {before.state}: a release follows one "
                    "that was published before it"
                )
            return True

        self._append("follows", release_id, check, {"follows": follows, "relation": relation})

    def state(self, release_id: str) -> str:
        """``"charged"``, ``"published"`` or ``"void"``.

        Raises:
            LedgerError: no such release.

        Privacy: none is spent.
        """
        return self._one(self._rows(), release_id).state

    def charges(self) -> list[Charge]:
        """All charges, in order, with their states. Privacy: none is spent."""
        return list(charges_of(self._rows()).values())

    def disclosures(self) -> list[tuple[Charge, Disclosure]]:
        """Everything that was to be stated exactly, in order, each with the charge of its release.

        Releases that became void are among them: their counts may have been read, and shown, before that.

        Raises:
            LedgerError: the ledger cannot be read, or was altered.

        Privacy: none is spent. Exact together is whatever the rows of all of them span, which may be more than any
        one says (Subspace Differential Privacy, Proposition 2.9; :func:`tabulae.domain.joint_row_space`).
        """
        return disclosures_of(self._rows())

    def find(self, digest: bytes) -> list[Charge]:
        """The charges made for this digest, by which an interrupted release is resumed.

        Privacy: none is spent; the ids are recomputed with the stored nonces.
        """
        with store.connect(self.path, write=False) as connection:
            _, key = self._verified(connection)
            rows = store.rows_from(connection, 0)
        nonces = {row.sequence: row.content()["nonce"] for row in rows if row.kind == "charge"}
        return [
            charge
            for charge in charges_of(rows).values()
            if charge.release_id == _release_id(key, digest, bytes.fromhex(nonces[charge.sequence]))
        ]

    def derive(self, purpose: bytes) -> bytes:
        """A secret key of 32 bytes for one purpose: the same for the same purpose, and stored nowhere.

        Args:
            purpose: what the key is for; another purpose gives an unrelated key.

        Raises:
            LedgerError: the ledger cannot be read, or was altered.

        Privacy: none is spent. HMAC-SHA-256 of the purpose under the ledger's own key, apart from the
        release ids and the seal, which begin otherwise: none of them tells of another.
        """
        with store.connect(self.path, write=False) as connection:
            _, key = self._verified(connection)
        return hmac.new(key, b"derive" + purpose, hashlib.sha256).digest()

    def entries(self, release_id: str | None = None) -> list[dict[str, Any]]:
        """Every entry as plain values, or those of one release; with the hashes, without the key.

        Privacy: none is spent.
        """
        return [
            {
                "sequence": row.sequence,
                "kind": row.kind,
                **content,
                "previous": row.previous,
                "hash": row.hash,
            }
            for row in self._rows()
            for content in [row.content()]
            if release_id is None or content.get("release_id") == release_id
        ]

    def export_json(self, release_id: str | None = None) -> str:
        """The ledger, or the part of one release, for people and archives. Privacy: none is spent."""
        view = self._refresh()
        sums = (view.spent, view.spent_delta)
        summary = {
            "definition": self.definition,
            "neighbours": self.neighbours,
            "unit": self.unit,
            "budget": write_loss(self.budget),
            "spent": {name: str(value) for name, value in zip(self.budget.parameters, sums, strict=False)},
            "head": view.head,
            "entries": self.entries(release_id),
        }
        return _LIST.sub(
            lambda found: re.sub(r",\n\s*", ", ", f"[{found[1]}]"), json.dumps(summary, indent=2)
        )

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, {self.budget!r}, spent='{self._view.spent}')"

    def _repr_html_(self) -> str:
        from ...notebook import CardRows, card

        told = ", ".join(f"{name} {value}" for name, value in self.budget.parameters.items())
        facts: list[tuple[str, object]] = [
            ("file", str(self.path)),
            ("promise", f"{self.definition}, {change_words(self.neighbours, self.unit)}"),
            ("cap", told),
        ]
        try:
            charges, spent, left = self.charges(), self.spent, self.remaining
        except LedgerError as error:  # a notebook shows what it can of a file that is gone
            return card("Ledger", [*facts, ("cannot be read", str(error))])
        rows = (
            (c.sequence, c.time[:10], c.title, ", ".join(map(str, c.loss.parameters.values())), c.state)
            for c in reversed(charges)
        )
        facts += [("spent", str(spent)), ("left", str(left)), ("charges", len(charges))]
        return card("Ledger", facts, CardRows(("#", "date", "title", "loss", "state"), rows, len(charges)))

    def _rows(self) -> list[ChainedEntry]:
        with store.connect(self.path, write=False) as connection:
            self._verified(connection)
            rows = store.rows_from(connection, 0)
        verify(rows, 0, START, str(self.path))  # those seen before are read again, so they are verified again
        return rows

    def _refresh(self) -> VerifiedChain:
        with store.connect(self.path, write=False) as connection:
            self._view, _ = self._verified(connection)
        return self._view

    def _verified(self, connection: Any) -> tuple[VerifiedChain, bytes]:
        """Verify what was added since the last look, and that what was seen then is still there."""
        seen, where = self._view, str(self.path)
        rows = store.rows_from(connection, seen.sequence)
        key = store.key_of(connection, self.path)
        if not rows or rows[0].sequence != seen.sequence or rows[0].hash != seen.head:
            raise altered(where, f"entry {seen.sequence} is not the one read before")
        verify(rows[1:], seen.sequence + 1, seen.head, where)
        store.check_seal(connection, key, rows[-1], self.path)
        return seen.advance(rows[1:]), key

    def _append(
        self,
        kind: str,
        release_id: str,
        wanted: Callable[[Charge], bool],
        said: Mapping[str, str] | None = None,
    ) -> None:
        """Add a row about a charged release, if its state wants one."""
        with store.connect(self.path, write=True) as connection:
            view, key = self._verified(connection)
            if not wanted(self._one(store.rows_from(connection, 0), release_id)):
                return
            content = {"release_id": release_id, **(said or {}), "time": self._time()}
            row = link(view.sequence + 1, kind, content, view.head)
            store.append(connection, key, [row])
        self._view = view.advance([row])

    def _time(self) -> str:
        return _now() if self._dated is None else self._dated.isoformat(timespec="seconds")

    def _one(self, rows: list[ChainedEntry], release_id: str) -> Charge:
        try:
            return charges_of(rows)[release_id]
        except KeyError as error:
            raise LedgerError(
                f"{self.path} has no release {release_id}; see `tabulae ledger show`"
            ) from error


def _release_id(key: bytes, digest: bytes, nonce: bytes) -> str:
    return hmac.new(key, b"release" + digest + nonce, hashlib.sha256).hexdigest()[:_ID_LENGTH]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def differences(asked: Promise, kept: Promise) -> Iterator[tuple[str, str, str]]:
    """In what two promises differ: the word, and what each says. Privacy: losses of one kind alone add up."""
    for word, one, other in zip(("definition", "neighbours", "unit"), asked, kept, strict=True):
        if one != other:
            yield word, one, other


def _check_kind(ledger: Ledger, loss: PrivacyLoss, neighbours: str, unit: str) -> None:
    """Losses of one kind alone add up.

    Raises:
        BudgetRefused: the release is of another definition, or has other neighbours or another unit.

    Privacy: none is spent; sequential composition adds losses of one kind.
    """
    for word, asked, kept in differences((loss.definition, neighbours, unit), ledger.promise):
        raise BudgetRefused(
            f"the release has {word} {asked!r}, the ledger {ledger.path} has {kept!r}; "
            "losses of different kinds do not add up: use a ledger of the same kind"
        )


def _check_disclosures(ledger: Ledger, disclosures: Sequence[Disclosure]) -> None:
    """Neighbours that exact counts define need exact counts.

    Raises:
        InvalidArgument: something that is no disclosure, or none where neighbours are defined by them.

    Privacy: none is spent; neighbours within invariants are defined by what is disclosed (Subspace Differential
    Privacy, Proposition 2.9).
    """
    for disclosure in disclosures:
        if not isinstance(disclosure, Disclosure):
            raise InvalidArgument(f"disclosures holds a {type(disclosure).__name__}: give Disclosure objects")
    if ledger.neighbours == WITHIN and not disclosures:
        raise InvalidArgument(
            f"the ledger {ledger.path} promises that one {ledger.unit} replaced within the invariants does not show, "
            "and this release has none: state its exact counts, or use a ledger of neighbours 'replace'"
        )


def _check_cap(ledger: Ledger, view: VerifiedChain, loss: PrivacyLoss) -> None:
    """The sum of all charges stays within the cap, exactly in fractions; delta likewise.

    Privacy: sequential composition (Bun and Steinke 2016, Lemma 1.7).

    Raises:
        BudgetRefused: the cap does not cover the loss.
    """
    for word, cap in ledger.budget.parameters.items():
        spent = view.spent_delta if word == "delta" else view.spent
        asked = loss.parameters[word]
        if spent + asked > cap:
            raise BudgetRefused(
                f"{word} {asked} is asked for and {cap - spent} of {cap} is left in {ledger.path}; "
                "ask for less. A cap never changes, and another ledger promises for its own releases alone"
            )


def mark_void(ledger: Ledger, release_id: str, error: BaseException) -> BaseException:
    """The error to raise for a charge of which nothing can be published, once it is marked void; it stays spent.

    Args:
        ledger: where it was charged.
        release_id: the charge.
        error: why its noise, or the counts that it was to be added to, are lost.

    Privacy:
        What was charged stays spent, whether anybody saw the noise or not: sequential composition then holds for
        whatever is charged next.
    """
    try:
        ledger.settle(release_id, "void")
    except (LedgerError, OSError):
        mark = "could not be marked void in the ledger, but stays spent"
    else:
        mark = "is void and stays spent"
    if isinstance(error, TabulaeError | OSError):
        told = str(error) if isinstance(error, TabulaeError) else (error.strerror or str(error))
        return ReleaseError(f"{told}. Nothing was published; the charge {release_id} {mark}")
    return error
