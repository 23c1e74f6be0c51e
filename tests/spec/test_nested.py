"""A missing, an unknown and a wrongly typed key in every section of the document, and in the sections within them."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from tabulae.errors import SpecError
from tabulae.spec import Spec
from tabulae.spec.groups import DetailedSection, LevelEntry, LevelTarget, SuppressEntry
from tabulae.spec.shape import (
    AttributeEntry,
    InvariantEntry,
    LeftOutEntry,
    MethodSection,
    PrivacySection,
    RecodeEntry,
    ReleaseSection,
    SamplingEntry,
    SourceSection,
    TableEntry,
    TargetEntry,
    UnitsEntry,
)

TABLES = """
[source]
path = "people.csv"
[attributes]
age = { range = [0, 9] }
[recodes]
half = { of = "age", edges = [5] }
[privacy]
definition = "zcdp"
budget = "1"
ledger = "ledger.db"
[[table]]
name = "ages"
attributes = ["age"]
target = { margin = 3, confidence = 0.9 }
[[invariant]]
attributes = []
reason = "known"
[method]
seed = 1
[release]
max_rows = 1000
"""

# Section -> where it begins in the document, how its path is written, a key of it, and a value of another type.
SECTIONS: dict[type[BaseModel], tuple[str, str, str, str]] = {
    SourceSection: ("[source]\n", "source", "unit", "3"),
    UnitsEntry: ("units = {", "source.units", "table", "3"),
    AttributeEntry: ("age = {", "attributes.age", "null", "3"),
    RecodeEntry: ("half = {", "recodes.half", "map", "3"),
    PrivacySection: ("[privacy]\n", "privacy", "delta", "3"),
    LeftOutEntry: ("[privacy.left_out]\n", "privacy.left_out", "at_most", '"a"'),
    TableEntry: ("[[table]]\n", "table[0]", "weight", '"a"'),
    TargetEntry: ("target = {", "table[0].target", "rmse", '"a"'),
    SamplingEntry: ("sampling = {", "table[0].sampling", "a", '"a"'),
    InvariantEntry: ("[[invariant]]\n", "invariant[0]", "name", "3"),
    MethodSection: ("[method]\n", "method", "time_limit", '"a"'),
    ReleaseSection: ("[release]\n", "release", "max_rows", '"a"'),
    DetailedSection: ("[detailed]\n", "detailed", "stage_one", "3"),
    SuppressEntry: ("suppress = {", "detailed.suppress", "regions", "3"),
    LevelEntry: ("[[detailed.level]]\n", "detailed.level[0]", "region", "3"),
    LevelTarget: ("target = {", "detailed.level[0].target", "formula", "3"),
}
SUPPRESS = 'suppress = { chance = "0.999" }\n'


def _document(guild: Path, section: type[BaseModel]) -> str:
    """A document that has the section."""
    if section is LeftOutEntry:
        counted, _, rest = TABLES.partition("[[invariant]]")
        bound = counted.replace("[source]", '[source]\nunit_id = "id"')
        return bound + rest[rest.index("[method]") :] + '[privacy.left_out]\nshare = "1/50"\nat_most = 20\n'
    if section is UnitsEntry:
        counted = TABLES.partition("[[invariant]]")[0]
        return counted.replace("[source]", '[source]\nunit_id = "id"\nunits = { path = "units.csv" }')
    if section is SamplingEntry:
        weighed = "[values]\nw = { range = [0, 9] }\n[privacy]"
        sampled = 'survey_weight = "w"\nsampling = { b = 30 }\ntarget'
        counted = TABLES.partition("[[invariant]]")[0]
        return counted.replace("[privacy]", weighed).replace("target", sampled)
    if section.__module__.endswith(".shape"):
        return TABLES
    text = guild.read_text().replace("nowhere =", f"{SUPPRESS}nowhere =")
    return text.replace('budget = "1"\n', 'budget = "1"\ntarget = { margin = 40 }\n', 1)


def _told(guild: Path, text: str) -> dict[str, str]:
    """Path -> message of every mistake."""
    with pytest.raises(SpecError) as caught:
        Spec.from_text(text, guild.parent)
    return {problem.path: problem.message for problem in caught.value.problems}


def _with(text: str, section: type[BaseModel], pair: str) -> str:
    """The document with one more pair in the section, which may be an inline table."""
    begin = SECTIONS[section][0]
    assert begin in text
    return text.replace(begin, f"{begin} {pair}{', ' if begin.endswith('{') else chr(10)}", 1)


def test_the_sections_are_all_of_them() -> None:
    def within(model: type[BaseModel]) -> set[type[BaseModel]]:
        kinds = (kind for field in model.model_fields.values() for kind in get_args(field.annotation))
        inner = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)}
        return {model}.union(*(within(kind) for kind in inner))

    assert set(SECTIONS) == set[type[BaseModel]]().union(*(within(model) for model in SECTIONS))
    assert {model for model in SECTIONS if len(within(model)) > 1} == {
        SourceSection,
        PrivacySection,
        TableEntry,
        DetailedSection,
        LevelEntry,
    }


def test_the_documents_are_without_a_mistake(guild: Path) -> None:
    for section in SECTIONS:
        document = _document(guild, section)
        assert Spec.from_text(document, guild.parent).ledger == guild.parent / "ledger.db", section


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_an_unknown_key_is_told_with_the_keys_of_its_own_section(
    guild: Path, section: type[BaseModel]
) -> None:
    _, path, key, _ = SECTIONS[section]
    told = _told(guild, _with(_document(guild, section), section, f"{key}x = 1"))
    assert told == {f"{path}.{key}x": f'unknown key; did you mean "{key}"?'}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_a_value_of_another_type_is_told_at_its_key(guild: Path, section: type[BaseModel]) -> None:
    _, path, key, value = SECTIONS[section]
    text = _document(guild, section)
    lines = [line for line in text.split("\n") if not line.startswith(f"{key} = ")]
    told = _told(guild, _with("\n".join(lines), section, f"{key} = {value}"))
    assert told[f"{path}.{key}"].startswith("must be ")


@pytest.mark.parametrize(
    ("section", "key"),
    [
        (section, key)
        for section in SECTIONS
        for key, field in section.model_fields.items()
        if field.is_required()
    ],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_a_missing_key_is_told_with_what_it_is(guild: Path, section: type[BaseModel], key: str) -> None:
    begin, path, _, _ = SECTIONS[section]
    head, tail = _document(guild, section).split(begin, 1)
    inline = begin.endswith("{")
    inside, rest = (
        tail.split("}", 1) if inline else (tail, "") if "\n\n" not in tail else tail.split("\n\n", 1)
    )
    pairs = inside.split(", " if inline else "\n")
    kept = [pair for pair in pairs if not pair.strip().startswith(f"{key} = ")]
    assert len(kept) < len(pairs)
    inside = (", " if inline else "\n").join(kept)
    told = _told(guild, head + begin + inside + ("}" if inline else "\n\n") + rest)
    assert told[f"{path}.{key}"] == f"is missing: {section.model_fields[key].description}"


@pytest.mark.parametrize("target", ["{ rmse = 3 }", "{ confidence = 0.95 }", "{}"])
def test_a_level_that_misses_its_margin(guild: Path, target: str) -> None:
    text = _document(guild, LevelEntry).replace("{ margin = 40 }", target)
    told = _told(guild, text)
    assert told["detailed.level[0].target.margin"].startswith("is missing: the widest half-width")
    assert ("detailed.level[0].target.rmse" in told) == ("rmse" in target)
    if "rmse" in target:
        assert (
            told["detailed.level[0].target.rmse"]
            == 'unknown key; known here: "margin", "confidence", "formula"'
        )
