"""The release document as a whole: every section joined, or every mistake told."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..domain import Domain, Workload
from ..errors import InvalidArgument, Problem, SpecError, Unsupported
from ..privacy import RECORDS, ZCDP, LeftOut, Neighbours, NoiseLaw, PrivacyLoss, PureDP, decimal
from ..sources.condition import Condition
from ..sources.source import RecordSource, is_url, kind_of, kinds, server_of
from . import published
from .derived import Derived, read_derived
from .problems import KeyLines, Problems, written_twice
from .promise import Method, read_method, read_promise
from .schema import ColumnRule, read_schema
from .section import Kind as ReleaseKind
from .section import read_section
from .sections import Document, read_sections
from .series import Series, read_series
from .shape import ReliabilitySection, SourceSection

if TYPE_CHECKING:
    from ..strategy import Strategy, Targets


@dataclass(frozen=True, repr=False)
class Spec:
    """A release document that was read without a mistake: what is counted, promised, and by which method.

    Attributes:
        title: what the release is called.
        source: where the records are.
        domain: the public domain, with its recodes.
        detailed: the groups to tabulate instead of tables, or None.
        geography: the areas to count in, with the tables that are published for them, or None.
        invariants: the counts to publish exactly, each with its reason; those of areas are in ``geography``.
        earlier: the counts of an earlier release that estimates of tables equal; those of areas are in ``geography``.
        columns: attribute -> the column that it is read from and its policies.
        loss: the privacy loss that the release may cost, exact.
        delta: for statements of (epsilon, delta); None where the spec gives none.
        neighbours: as of :func:`tabulae.privacy.check_neighbours`.
        ledger: the file that the loss is charged to; None in a published copy.
        targets: what tables may be wrong by, or None.
        open_budget: whether ``loss`` only stands for one to be found from the targets; it cannot be spent then.
        unit: what one neighbour differs by.
        unit_id: the column that says which rows are of one unit; None where every row is a unit by itself.
        rows_per_unit: the most rows of one unit that are counted.
        left_out: what is told of the rows left out for that, and the share of ``loss`` that pays for it; or None.
        method: selection, noise and estimation.
        max_rows: the most rows that the release may publish.
        reliability: the classes that the report puts counts in.
        series: the release that this one follows, or None.
        derived: the figures that are computed from published counts, means of values first.
        units: of the tables of the workload that are no counts, what they are.
        sampling: by name, of the weighted tables and means whose intervals hold sampling, what it is.
        text: the document as written.
        path: the file it was read from, or None.
        files: content of the code lists and matrices that it names, under their published names.

    >>> spec = Spec.from_text('''
    ... [source]
    ... path = "people.csv"
    ... [attributes]
    ... age = { range = [0, 114] }
    ... [privacy]
    ... definition = "zcdp"
    ... budget = "1/2"
    ... ledger = "ledger.db"
    ... [[table]]
    ... name = "ages"
    ... queries = { age = "prefix" }
    ... ''')
    >>> spec.loss, spec.method.noise, spec.workload.queries
    (ZCDP(rho='1/2'), 'gaussian', 115)
    """

    title: str
    source: RecordSource
    domain: Domain
    columns: Mapping[str, ColumnRule]
    loss: PrivacyLoss
    delta: Fraction | None
    neighbours: Neighbours
    ledger: Path | None
    targets: Targets | None
    open_budget: bool
    unit: str
    unit_id: str | None
    rows_per_unit: int
    method: Method
    max_rows: int
    reliability: ReliabilitySection
    series: Series | None
    derived: tuple[Derived, ...]
    text: str
    path: Path | None
    files: Mapping[str, bytes] = field(compare=False)
    _record: published.Record = field(compare=False)
    detailed: Any = None
    geography: Any = None
    invariants: tuple[Any, ...] = ()
    earlier: tuple[Any, ...] = ()
    left_out: LeftOut | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    _workload: Workload | None = None
    _planned: frozenset[str] = frozenset()

    @property
    def kind(self) -> ReleaseKind:
        """Which kind of release the document asks for: the name of the product's folder."""
        return "areas" if self.geography is not None else "groups" if self.detailed is not None else "tables"

    @property
    def product(self) -> Any:
        """The class that makes and checks releases of this kind: :class:`tabulae.products.product.Product`.

        Products stand above documents, so it is found by the name of its folder.
        """
        return import_module(f"tabulae.products.{self.kind}.product").PRODUCT

    @property
    def workload(self) -> Workload:
        """The tables to publish, with their weights.

        Raises:
            Unsupported: the spec tabulates groups, and publishes no table that is fixed beforehand; or its tables are
                of areas.
        """
        if self.geography is not None:
            raise Unsupported("this spec has [geography]: its tables are of areas, and no single workload")
        if self._workload is None:
            raise Unsupported("this spec has [detailed], which tabulates groups: it has no [[table]]")
        return self._workload

    @property
    def published(self) -> Workload:
        """The tables of the workload that are published: all but those that stand for means."""
        whole = self.workload
        if not self._planned:
            return whole
        return Workload(whole.domain, [table for table in whole.tables if table.name not in self._planned])

    @property
    def tables_loss(self) -> PrivacyLoss:
        """What the tables cost of ``loss``: all of it, but for the share that says how many rows are left out.

        Privacy:
            Laws of tables are sized by it; what is promised, charged and added up over releases is ``loss``.
        """
        return self.loss if self.left_out is None else self.left_out.of_tables(self.loss)

    def table_laws(self, strategy: Strategy) -> tuple[NoiseLaw, ...]:
        """The noise of each block of a strategy that measures the tables.

        Privacy:
            That of :meth:`tabulae.Strategy.laws`, at :attr:`tables_loss`.
        """
        return strategy.laws(self.tables_loss, *self.change)

    def left_out_laws(self) -> tuple[NoiseLaw, ...]:
        """The noise of the counts of ``left_out``; empty without it.

        Raises:
            Unsupported: the share is so small that no noise can be drawn for it.

        Privacy:
            That of :meth:`tabulae.privacy.LeftOut.laws`, at the whole ``loss``.
        """
        if self.left_out is None:
            return ()
        try:
            return self.left_out.laws(self.loss, self.method.noise)
        except InvalidArgument as error:
            raise Unsupported(f"left_out asks for too much noise ({error}): give it a larger share") from None

    @classmethod
    def from_text(cls, text: str, base_dir: str | PathLike[str] = ".", name: str = "spec") -> Spec:
        """Read a document from memory.

        Args:
            text: the TOML document.
            base_dir: the folder that the paths in it are relative to.
            name: what to call the document in errors.

        Raises:
            SpecError: the document has mistakes; all of them, each with its path and line.
        """
        try:
            raw = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SpecError([_syntax(error, text)], name) from None
        base = Path(base_dir)
        problems = Problems(KeyLines(text))
        document = read_sections(raw, problems)
        series = read_series(raw, base, problems)
        schema = read_schema(document, base, problems)
        promise = read_promise(document, base, problems)
        method = read_method(document, problems)
        read = read_section(document, schema, promise, method, base, problems)
        derived = read_derived(document, schema, method, read, problems)
        if read:
            derived = (*read.figures, *derived)
        loss = promise and (read.loss(promise.loss, problems) if read else promise.loss)
        problems.raise_any(name)
        section, release = document.source, document.release
        if not (section and release and schema.domain and promise and loss and method and read):
            raise AssertionError("a part of the document could not be read and recorded no reason")
        return cls(
            title=document.title,
            source=_source(section, base),
            domain=schema.domain,
            columns=schema.columns,
            loss=loss,
            delta=promise.delta,
            neighbours=promise.neighbours,
            ledger=promise.ledger,
            targets=_targets(document),
            open_budget=promise.open_budget,
            unit=section.unit,
            unit_id=section.unit_id,
            rows_per_unit=section.rows_per_unit,
            left_out=promise.left_out,
            method=method,
            max_rows=release.max_rows,
            reliability=document.reliability or ReliabilitySection(),
            series=series,
            derived=derived,
            text=text,
            path=None,
            files={**schema.files, **read.files},
            _record=published.record_of(
                document, method, read.files if read.listed else (), series, read.marks
            ),
            **read.parts,
        )

    def with_budget(self, loss: PrivacyLoss) -> Spec:
        """The same spec with a loss found for its targets; still one that cannot be spent until it is written."""
        if self.geography is None or not isinstance(loss, PureDP | ZCDP):
            return replace(self, loss=loss)
        return replace(self, loss=loss, geography=self.geography.with_budget(loss))

    def with_shares(self, shares: Any) -> Spec:
        """The same spec as if shares that were chosen for its tables stood in it; of one with ``[geography]``."""
        names = [query.names for query in self.geography.queries]
        levels = {name: decimal(share) for name, share in shares.levels.items()}
        queries = [
            (each, {at: decimal(given[i]) for at, given in shares.queries.items() if given[i]})
            for i, each in enumerate(names)
        ]
        record = published.with_shares(self._record, levels, queries)
        return replace(self, geography=self.geography.with_shares(shares), _record=record)

    @property
    def change(self) -> tuple[Neighbours, int, int]:
        """What one unit may change of the records that are counted: neighbours, stability and fewest of a strategy.

        Privacy:
            Where only some records are counted, a unit that is replaced may come among them or leave them: the noise is
            then for that, too. A unit that has a row of its own is counted whichever of its records are. See
            :func:`tabulae.strategy.strategy.of_units`.
        """
        whole = self.source.where is None or self.source.units is not None
        return self.neighbours, self.rows_counted, int(whole)

    @property
    def rows_counted(self) -> int:
        """How many things that are counted one unit is at most: its records, or itself where units are counted.

        A unit that is counted with its records is one record of as many parts: see :meth:`tabulae.Attribute.seats`.
        """
        return 1 if self.domain.seats is not None else self.rows_per_unit

    @property
    def has_public_total(self) -> bool:
        """Whether no neighbour changes the number of records that are counted, so that it takes no noise."""
        neighbours, most, fewest = self.change
        return neighbours not in ("add-remove", *RECORDS) and most == fewest

    @property
    def chosen_for(self) -> Neighbours:
        """The neighbours that a strategy is chosen for.

        Where units may differ in how many rows of them are counted, the total is not public: columns count, too.
        """
        return self.neighbours if self.has_public_total or self.neighbours in RECORDS else "add-remove"

    def check_spendable(self) -> None:
        """Refuse to spend a budget that the spec does not write.

        Raises:
            SpecError: the budget is still to be found from the targets.
        """
        if self.open_budget:
            remedy = 'run `tabulae plan`, and write the budget that it finds, budget = "..."'
            whose = "tables"
            if self.detailed is not None:
                whose, remedy = "levels", "run `tabulae plan`, and write the budgets that it finds"
            problem = Problem("privacy.budget", f"is to be found from the {whose}' targets: {remedy}")
            raise SpecError([problem], str(self.path or "spec"))

    def published_text(self) -> str:
        """The document as it is published: canonical TOML without comments, paths, hosts or passwords.

        ``[source]`` says its kind, its unit and the bound on its rows only, the ledger is not named, defaults are
        written out, and the files that it names are those of ``files``. `Spec.from_text` reads it back, in a
        folder that holds them, to a spec with the same digest; it runs once a source and a ledger are given.
        """
        return published.text_of(self._record, self.source.kind)

    def digest(self) -> str:
        """SHA-256, in hexadecimal, of what is counted and promised, and of the files that say so.

        Where the records and the ledger are, and of which kind, is left out; so are comments and layout.
        """
        return published.digest(self._record, self.files)

    def measured_digest(self) -> str:
        """As :meth:`digest`, of what is counted, promised and measured, however tables and groups are estimated.

        Measurements of areas are stored as their estimator reads them: there it is the digest of the whole.
        """
        return published.digest(published.measured(self._record, self.kind), self.files)

    def with_source(self, place: str | PathLike[str], table: str | None = None) -> Spec:
        """The same spec, with the same digest, reading its records from another place.

        Args:
            place: a file, whose ending says its kind, and where it does not, the kind stays; or the url of a
                PostgreSQL database, as ``postgresql://user@host/database``, without a password; or of one Parquet file,
                as ``s3://bucket/people.parquet``.
            table: the table, for a DuckDB file or a database; by default the one that the spec names.

        Raises:
            InvalidArgument: a DuckDB file or a database without a table, a file of unknown kind, a url that is not
                taken.
        """
        table, where = table or self.source.table, self.source.where
        if is_url(str(place)):
            self._refuse_units()
            server = server_of(str(place))
            table = table if server is None or server.many else None
            return replace(self, source=RecordSource(url=str(place), table=table, where=where))
        kind = kind_of(str(place)) or self.source.kind
        if kinds()[kind].schemes:
            raise InvalidArgument(
                "cannot tell what kind of file is meant: end its name in .csv, .parquet or .duckdb, or give a url, "
                "postgresql://host/database"
            )
        engine = self.source.engine if kind == self.source.kind else None
        self._refuse_units()
        table, dialect = table if kinds()[kind].many else None, self.source.dialect
        source = RecordSource(Path(place), kind, table, engine, dialect=dialect, where=where)
        return replace(self, source=source)

    def _refuse_units(self) -> None:
        if self.source.units is not None:
            raise InvalidArgument(
                "this spec reads units beside their records: write both places in the document, under [source]"
            )

    def __repr__(self) -> str:
        if self.detailed is not None:
            return f"Spec({self.title!r}, {len(self.detailed.levels)} levels of groups, {self.loss!r})"
        if self.geography is not None:
            return f"Spec({self.title!r}, {len(self.geography.tables)} tables of areas, {self.loss!r})"
        return f"Spec({self.title!r}, {len(self.workload.tables)} tables, {self.loss!r})"


def read_spec(path: str | PathLike[str]) -> Spec:
    """Read the release document at ``path``; paths in it are relative to its folder.

    Raises:
        SpecError: the file cannot be read, or the document has mistakes: all of them, with path and line.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SpecError(
            [Problem("document", f"cannot be read: {error.strerror}; {_cure(path)}")], str(path)
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SpecError([Problem("document", "is not text in UTF-8: save it so", line)], str(path)) from error
    return replace(Spec.from_text(text, path.parent, str(path)), path=path)


def _cure(path: Path) -> str:
    """What to do where no document can be read."""
    if path.is_dir():
        return "it is a folder: name the document in it"
    if server_of(str(path)):
        return "it is the address of a server: name a document, in which url under [source] has that address"
    return "check the path"


def _source(section: SourceSection, base: Path) -> RecordSource:
    path = None if section.path is None else base / section.path
    where = None if section.where is None else Condition(section.where)
    place = path, section.kind, section.table, section.engine, section.url, section.dialect
    if section.units is None:
        return RecordSource(*place, where)
    own = None if section.units.path is None else base / section.units.path
    units = RecordSource(own, *place[1:2], section.units.table, *place[3:])
    return RecordSource(*place, where, units)


def _targets(document: Document) -> Targets | None:
    """The targets of the tables, or None where no table has one."""
    published = [entry.published for entry in document.tables if entry]
    aimed = {name: each.target for files in published for name, each in files.items() if each.target}
    if not aimed:
        return None
    from ..strategy import Targets

    return Targets(
        rmse={name: target.rmse for name, target in aimed.items() if target.rmse},
        margin={name: target.margin for name, target in aimed.items() if target.margin},
        confidence={name: target.confidence for name, target in aimed.items() if target.confidence},
    )


def _syntax(error: tomllib.TOMLDecodeError, text: str) -> Problem:
    """What ``tomllib`` refuses, as a problem with its line; it stops at the first."""
    message = str(error)
    at = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    if at is None:
        return Problem("document", f"is not TOML: {message}")
    lines = text.split("\n")
    line, column = (int(at[1]), int(at[2])) if at[1] else (len(lines), len(lines[-1]) + 1)
    if twice := written_twice("\n".join([*lines[: line - 1], lines[line - 1][: column - 1]])):
        return twice
    return Problem("document", f"is not TOML: {message[: at.start()]}", line)
