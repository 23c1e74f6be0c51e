"""Each fault of a text file of records: what is told, and where."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.each import each

from tabulae.domain.groups import CodeFamily
from tabulae.errors import DataError, InvalidArgument
from tabulae.interop.safetab.lines import (
    LONGEST,
    Code,
    Key,
    LineColumn,
    LineFault,
    LineLayout,
    Listed,
    Unused,
    WholeNumber,
    check_lines,
    line_count,
)

RACE = CodeFamily("race", ("1010", "1020", "1030"), most=3)
LOOKS = "a code of four digits, such as 1010"
COLUMNS = (
    LineColumn("AGE", WholeNumber("age", 0, 115)),
    LineColumn("SEX", Listed("sex", ("1", "2"))),
    LineColumn("NOTE", Unused()),
    LineColumn("COUNTY", Key()),
    LineColumn("BLOCK", Key()),
    LineColumn("RACE1", Code(RACE, pattern=r"[1-9]\d{3}", looks=LOOKS)),
    LineColumn("RACE2", Code(RACE, "Null", r"[1-9]\d{3}", LOOKS)),
    LineColumn("RACE3", Code(RACE, "Null", r"[1-9]\d{3}", LOOKS)),
)
LEAVES = [("01", "001"), ("01", "002"), ("02", "001")]
LAYOUT = LineLayout(COLUMNS, LEAVES)
HEADER = "AGE|SEX|NOTE|COUNTY|BLOCK|RACE1|RACE2|RACE3\n"
GOOD = "034|1|x|01|002|1010|1020|Null\n"


def faults(folder: Path, text: str | bytes, layout: LineLayout = LAYOUT) -> list[LineFault]:
    path = folder / "people.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    found = check_lines(path, layout)
    if not found:
        assert line_count(path, layout) == path.read_bytes().count(b"\n")
    return found


@pytest.mark.parametrize(
    "line",
    [
        GOOD,
        "0|1||01|001|1010|Null|Null\n",
        "000000|1||01|001|1010|1010|1010\n",
        "115|2|a quote \" and ' and # and é|01|001|1010|Null|Null\n",
        "00115|2| |02|001|1030|Null|Null\n",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_is_valid(tmp_path: Path, line: str, end: str) -> None:
    assert faults(tmp_path, (HEADER + GOOD + line).replace("\n", end)) == []


NUMBER = "must be a whole number from 0 to 115, in digits"


@pytest.mark.parametrize(
    ("line", "column", "message", "value"),
    [
        ("116|1|x|01|002|1010|1020|Null", "AGE", NUMBER, "116"),
        ("-1|1|x|01|002|1010|1020|Null", "AGE", NUMBER, "-1"),
        ("|1|x|01|002|1010|1020|Null", "AGE", NUMBER, ""),
        ("+3|1|x|01|002|1010|1020|Null", "AGE", NUMBER, "+3"),
        (" 3|1|x|01|002|1010|1020|Null", "AGE", NUMBER, " 3"),
        ("3.0|1|x|01|002|1010|1020|Null", "AGE", NUMBER, "3.0"),
        ("٣|1|x|01|002|1010|1020|Null", "AGE", NUMBER, "٣"),
        ("1" * 5000 + "|1|x|01|002|1010|1020|Null", "AGE", NUMBER, "1" * 5000),
        ("3|3|x|01|002|1010|1020|Null", "SEX", "must be one of '1', '2'", "3"),
        ("3|01|x|01|002|1010|1020|Null", "SEX", "must be one of '1', '2'", "01"),
        ('3|"1"|x|01|002|1010|1020|Null', "SEX", "must be one of '1', '2'", '"1"'),
        ("3|1|x|01|003|1010|1020|Null", "COUNTY, BLOCK", "the geography has no such leaf", "01|003"),
        ("3|1|x|02|002|1010|1020|Null", "COUNTY, BLOCK", "the geography has no such leaf", "02|002"),
        ("3|1|x|1|001|1010|1020|Null", "COUNTY, BLOCK", "the geography has no such leaf", "1|001"),
        ("3|1|x|01|001\0|1010|1020|Null", "COUNTY, BLOCK", "the geography has no such leaf", "01|001\0"),
        ("3|1|x|01|002|1040|1020|Null", "RACE1", "is not a known code of 'race'", "1040"),
        ("3|1|x|01|002|Null|Null|Null", "RACE1", f"must be {LOOKS}", "Null"),
        ("3|1|x|01|002|1010|0010|Null", "RACE2", f"must be {LOOKS}, or 'Null'", "0010"),
        ("3|1|x|01|002|1010|null|Null", "RACE2", f"must be {LOOKS}, or 'Null'", "null"),
        ("3|1|x|01|002|1010|Null|1020", "RACE3", "must be 'Null', as the column before it is", "1020"),
    ],
)
def test_a_value_that_a_column_may_not_hold(
    tmp_path: Path, line: str, column: str, message: str, value: str
) -> None:
    found = faults(tmp_path, HEADER + GOOD + line + "\n" + GOOD)
    assert found == [LineFault(3, column, message, value)]
    assert value == "" or value not in str(found[0]).removeprefix(f"line 3, column {column}: {message}")
    assert repr(value) not in repr(found[0])


@pytest.mark.parametrize(
    ("known", "columns"),
    [
        ({}, ["COUNTY, BLOCK", "RACE1", "RACE2", "RACE3"]),
        ({"leaves": False}, ["RACE1", "RACE2", "RACE3"]),
        ({"codes": False}, ["COUNTY, BLOCK", "RACE2"]),
        ({"leaves": False, "codes": False}, ["RACE2"]),
    ],
)
def test_what_is_not_known_is_not_looked_up_and_all_else_is_checked(
    tmp_path: Path, known: dict[str, bool], columns: list[str]
) -> None:
    race = CodeFamily("race", RACE.codes if known.get("codes", True) else (), most=3)
    layout = LineLayout(
        tuple(
            LineColumn(c.name, Code(race, c.rule.none, c.rule.pattern, LOOKS))
            if isinstance(c.rule, Code)
            else c
            for c in COLUMNS
        ),
        LEAVES if known.get("leaves", True) else (),
    )
    path = tmp_path / "people.txt"
    path.write_text(HEADER + "200|3|x|09|009|4444|x|4444\n" + "2|1|x|01|001|1010|Null|1010\n")
    found = check_lines(path, layout, **known)
    assert [f.column for f in found if f.line == 2] == ["AGE", "SEX", *_in_order(columns)]
    assert [(f.line, f.column) for f in found if f.line == 3] == [(3, "RACE3")]


def _in_order(columns: list[str]) -> list[str]:
    return [c for c in ("RACE1", "RACE2", "RACE3", "COUNTY, BLOCK") if c in columns]


FIELDS = "must have 8 fields divided by '|', as the header has"


@pytest.mark.parametrize(
    "line", ["", "3", "3|1|x|01|002|1010|1020", "3|1|x|01|002|1010|1020|Null|", "3,1,x,01,002,1010,1020,Null"]
)
def test_a_wrong_number_of_fields(tmp_path: Path, line: str) -> None:
    assert faults(tmp_path, HEADER + GOOD + line + "\n" + GOOD) == [LineFault(3, None, FIELDS, line)]


def test_all_faults_are_told_in_one_pass_by_line(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        HEADER + "200|9|x|09|002|1010|Null|1020\n" + GOOD + "3|x\n" + "x|1|x|01|002|1010|1020|Null\n",
    )
    assert [(fault.line, fault.column) for fault in found] == [
        (2, "AGE"), (2, "SEX"), (2, "COUNTY, BLOCK"), (2, "RACE3"), (4, None), (5, "AGE")
    ]  # fmt: skip


def test_a_thousand_of_a_kind_are_listed_and_the_rest_are_counted(tmp_path: Path) -> None:
    found = faults(tmp_path, HEADER + "x|1|x|01|002|1010|1020|Null\n" * 1234 + GOOD.replace("|1|", "|7|"))
    assert [fault.line for fault in found if fault.column == "AGE"] == [*range(2, 1002), None]
    assert str(found[-1]) == f"column AGE: {NUMBER}: in 234 more lines"
    assert [fault.line for fault in found if fault.column == "SEX"] == [1236]


def test_lines_are_numbered_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tabulae.interop.safetab.lines._BLOCK", 7)
    text = HEADER + GOOD * 20 + GOOD.replace("034", "é") + GOOD
    assert [(fault.line, fault.value) for fault in faults(tmp_path, text)] == [(22, "é")]
    assert faults(tmp_path, (HEADER + GOOD.replace("x", "é") * 3).replace("\n", "\r\n")) == []


SEX = "must be one of '1', '2'"
RETURN = "a carriage return stands within the line: end lines with a newline, or with both, not with it alone"
MARK = "the file begins with a byte-order mark: save it as UTF-8 without one"
LONG = f"the line is longer than {LONGEST} bytes: what follows was not checked"
ENDS = "the line ends in another way than the header: line ends must be all alike"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HEADER + GOOD + GOOD.replace("\n", "\r\n"), [(3, ENDS)]),
        ((HEADER + GOOD).replace("\n", "\r\n") + GOOD, [(3, ENDS)]),
        (HEADER + GOOD.replace("x", "x\r"), [(2, "a carriage return stands within the line")]),
        (HEADER + GOOD + GOOD[:-1], [(3, "the last line is cut off: it has no newline at its end")]),
        (HEADER + GOOD + GOOD[:9], [(3, "the last line is cut off: it has no newline at its end")]),
        (HEADER[:-1], [(1, "the last line is cut off: it has no newline at its end")]),
        (HEADER, [(None, "the file has a header and no records")]),
        ("", [(None, "the file is empty: it has no header and no records")]),
        (HEADER.encode() + GOOD.replace("x", "é").encode("latin-1"), [(2, "the line is not UTF-8 text")]),
        (HEADER.encode("utf-8-sig") + GOOD.encode(), [(1, MARK)]),
        (HEADER.encode("utf-8-sig") + GOOD.replace("|1|", "|7|").encode(), [(1, MARK), (2, SEX)]),
        ((HEADER + GOOD * 9).replace("\n", "\r"), [(1, RETURN)]),
        ((HEADER + GOOD * 40_000).replace("\n", "\r"), [(1, RETURN)]),
        (HEADER.encode("utf-16"), [(1, "the header is not UTF-8 text")]),
        (HEADER + GOOD + "x" * (LONGEST + 1) * 5, [(3, LONG)]),
    ],
)  # fmt: skip
def test_bytes_that_are_not_lines_of_text(
    tmp_path: Path, text: str | bytes, found: list[tuple[int, str]]
) -> None:
    assert [(fault.line, fault.message) for fault in faults(tmp_path, text)] == found
    assert line_count(tmp_path / "people.txt", LAYOUT) is None or text == HEADER + GOOD + GOOD.replace(
        "|1|", "|7|"
    )


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("AGE|SEX|NOTE|COUNTY|BLOCK|RACE1|RACE2", ["line 1, column RACE3: the column is missing"]),
        (
            "AGE|SEX|NOTE|COUNTY|BLOCK|RACE1|RACE2|RACE3|RACE4",
            ["line 1: column 9 of the header is not one of the layout"],
        ),
        (
            "SEX|AGE|NOTE|COUNTY|BLOCK|RACE1|RACE2|RACE3",
            [
                "line 1: the columns must stand in the order AGE, SEX, NOTE, COUNTY, BLOCK, RACE1, RACE2, RACE3"
            ],
        ),
        (
            "AGE|SEX|NOTE|COUNTY|BLOCK|RACE1|RACE2|RACE3|RACE3",
            ["line 1, column RACE3: the column is there more than once"],
        ),
        (
            "AGE|SEX|NOTE|COUNTY|BLOCK|RACE1|RACE2|Race3",
            [
                "line 1, column RACE3: the column is missing",
                "line 1: column 8 of the header is not one of the layout",
            ],
        ),
        (
            HEADER.strip().replace("|", ","),
            ["line 1: the fields seem to be divided by commas: they must be divided by '|'"],
        ),
        (
            HEADER.strip().replace("|", "\t"),
            ["line 1: the fields seem to be divided by tabs: they must be divided by '|'"],
        ),
    ],
)
def test_the_header(tmp_path: Path, header: str, found: list[str]) -> None:
    assert [str(fault) for fault in faults(tmp_path, header + "\n" + GOOD)] == found
    assert line_count(tmp_path / "people.txt", LAYOUT) is None


def test_a_first_record_in_place_of_the_header_is_not_shown(tmp_path: Path) -> None:
    found = faults(tmp_path, GOOD.replace("034", "SECRET") * 2)
    assert "SECRET" not in "".join(map(str, found)) + repr(found)
    assert next(fault.value for fault in found if fault.value) == "SECRET"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt does not exist"):
        check_lines(tmp_path / "none.txt", LAYOUT)
    with pytest.raises(DataError, match="is a folder"):
        line_count(tmp_path, LAYOUT)


def replaced(i: int, rule: object) -> tuple[LineColumn, ...]:
    return (*COLUMNS[:i], LineColumn(COLUMNS[i].name, rule), *COLUMNS[i + 1 :])  # type: ignore[arg-type]


@each(
    ("columns", "delimiter", "told"),
    [
        (COLUMNS, "||", "one ASCII sign"),
        (COLUMNS, "x", "one ASCII sign"),
        (COLUMNS, "\n", "not divided by line ends"),
        (COLUMNS[:2], "|", "needs a Key column"),
        ((*COLUMNS, COLUMNS[0]), "|", "one column of a name"),
        ((*COLUMNS, LineColumn("a|b", Unused())), "|", "cannot be the name"),
        ((*COLUMNS, LineColumn("AGE2", Listed("age", ("1",)))), "|", "one attribute of a name"),
        (replaced(1, Listed("sex", ("1", "1"))), "|", "each listed once"),
        (replaced(0, WholeNumber("age", 3, 2)), "|", "needs values"),
        (replaced(7, Code(RACE, "none")), "|", "one text stands for no code"),
        (replaced(7, Code(RACE, "1010")), "|", "one text stands for no code"),
        (replaced(6, Code(RACE, "Null", read=False)), "|", "the first ones are read"),
        (replaced(7, Code(CodeFamily("race", ("1010",), most=3))), "|", "different codes"),
        ((*COLUMNS, LineColumn("RACE4", Code(RACE, "Null"))), "|", "but more columns are read"),
    ],
)
def test_layouts_that_no_file_could_follow(
    columns: tuple[LineColumn, ...], delimiter: str, told: str
) -> None:
    with pytest.raises(InvalidArgument, match=told):
        LineLayout(columns, LEAVES, delimiter)
