"""Code lists: what is read, and every mistake with its file and line."""

from __future__ import annotations

import pytest

BAD_LISTS = {
    "header": ("kode,label\n01,White\n", ["codes/race.csv, line 1: the header must be code,label"]),
    "empty file": ("", ['cannot read "codes/race.csv" as a CSV file in UTF-8: its first line is empty']),
    "no rows": ("code,label\n", ["codes/race.csv: the file has no row below its header"]),
    "duplicate code": (
        "code,label\n01,White\n02,Black\n01,Both\n",
        ['codes/race.csv, line 4: code "01" is already on line 2'],
    ),
    "duplicate label": (
        "code,label\n01,White\n\n02,White\n",
        ['codes/race.csv, line 4: label "White" is already on line 2'],
    ),
    "short row": (
        "code,label\n01\n02,Black\n",
        ["codes/race.csv, line 2: has 1 field and the header has 2"],
    ),
    "empty code": ("code,label\n,White\n02,Black\n", ['codes/race.csv, line 2: "code" is empty']),
    "both": (
        "code,label\n,White\n02,Black\n02,Both\n",
        [
            'codes/race.csv, line 2: "code" is empty',
            'codes/race.csv, line 4: code "02" is already on line 3',
        ],
    ),
}


@pytest.mark.parametrize("name", BAD_LISTS)
def test_a_code_list_with_mistakes(desk, name: str) -> None:
    content, expected = BAD_LISTS[name]
    desk.file("codes/race.csv", content)
    told = desk.problems(desk.good)
    assert {problem.path for problem in told} == {"attributes.race.codes"}
    assert {problem.line for problem in told} == {10}
    assert len(told) == len(expected)
    for problem, message in zip(told, expected, strict=True):
        assert problem.message.startswith(message)


def test_a_file_that_is_all_wrong_is_told_of_in_few_lines(desk) -> None:
    desk.file("codes/race.csv", "code,label\n" + "\n" * 3 + "x\n" * 1000)
    told = desk.problems(desk.good)
    assert len(told) == 6
    assert told[0].message.startswith("codes/race.csv, line 5:")
    assert told[-1].message.endswith("further mistakes are not listed")


@pytest.mark.parametrize("content", [None, b"code,label\n01,caf\xe9\n", b'code,label\n01,"x\n'])
def test_a_file_that_cannot_be_read(desk, content: bytes | None) -> None:
    if content is None:
        (desk.base / "codes/race.csv").unlink()
    else:
        desk.file("codes/race.csv", content)
    [problem] = desk.problems(desk.good)
    assert problem.path == "attributes.race.codes"
    assert problem.message.startswith('cannot read "codes/race.csv"')


BAD_MAPS = {
    "unknown code": ("code,class\n01,a\n02,a\n03,b\n04,b\n", "'04'"),
    "missing code": ("code,class\n01,a\n02,a\n", "'03'"),
    "code twice": ("code,class\n01,a\n02,a\n03,b\n03,b\n", 'line 5: code "03" is already on line 4'),
    "two labels": ("code,class,label\n01,a,x\n02,a,y\n03,b,z\n", 'line 3: class "a" has two labels'),
    "one label for two": ("code,class,label\n01,a,x\n02,a,x\n03,b,x\n", "two classes have the same label"),
    "header": ("code,label\n01,a\n", "the header must be code,class or code,class,label"),
}


@pytest.mark.parametrize("name", BAD_MAPS)
def test_a_map_with_mistakes(desk, name: str) -> None:
    content, words = BAD_MAPS[name]
    desk.file("codes/major.csv", content)
    [problem] = desk.problems(desk.good)
    assert (problem.path, problem.line) == ("recodes.major.map", 14)
    assert words in problem.message


def test_a_map_may_give_labels_or_not(desk) -> None:
    desk.file("codes/major.csv", "code,class\n03,b\n01,a\n02,a\n")
    recode = desk.read(desk.good).domain.recode("major")
    assert recode.labels == ("b", "a")
    assert recode.classes.tolist() == [1, 1, 0]


def test_a_map_of_numbers(desk) -> None:
    desk.file("codes/ten.csv", "code,class\n" + "".join(f"{age},{age // 10}0s\n" for age in range(115)))
    recode = desk.read(desk.changed(("edges = [5, 10, 15, 18]", 'map = "codes/ten.csv"'))).domain.recode(
        "age5"
    )
    assert recode.classes.tolist() == [age // 10 for age in range(115)]


def test_a_map_places_the_extra_category_or_leaves_it_alone(desk) -> None:
    text = desk.changed(('"codes/race.csv"', '"codes/race.csv", null = "other"'))
    assert desk.read(text).domain.recode("major").labels == ("alone", "both", "other")
    desk.file("codes/major.csv", "code,class\n01,a\n02,a\n03,b\nother,b\n")
    assert desk.read(text).domain.recode("major").classes.tolist() == [0, 0, 1, 1]
    desk.file("codes/major.csv", "code,class\n01,a\n02,a\n03,other\n")
    [problem] = desk.problems(text)
    assert "say which class it belongs to" in problem.message


def test_a_file_saved_by_a_spreadsheet(desk) -> None:
    plain = desk.read(desk.good).domain
    desk.file(
        "codes/race.csv",
        b'\xef\xbb\xbfcode,label,parent\r\n01,"White",one\r\n02 , Black,one\r\n03,Both,two\r\n',
    )
    assert desk.read(desk.good).domain == plain
