"""The scanner against documents written by a generator that knows where it put each key."""

from __future__ import annotations

import tomllib

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from tabulae.errors import SpecError
from tabulae.spec import Spec
from tabulae.spec.problems import KeyLines, written_twice

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=6)
SCALARS = (
    st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=20)
    | st.sampled_from(["#", "]", "}", '"', "'", "'''", '"""', "[[t]]", "a = 1", "\\", "\n[x]\n"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=5)


def paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every key path of parsed TOML."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, part in inner for deeper in paths(part, (*path, key)))]


@given(DOCUMENTS, st.booleans())
def test_every_key_of_any_document_is_found(document: dict[str, object], multiline: bool) -> None:
    text = tomli_w.dumps(document, multiline_strings=multiline)
    parsed = tomllib.loads(text)
    lines = KeyLines(text)
    found = set(lines._lines)
    assert found == set(paths(parsed)) - {()}
    assert all(1 <= line <= text.count("\n") + 1 for line in lines._lines.values())


MARKED = '''
# 2: a comment with [brackets] and "quotes"
top = 1                                              # @top
text = """a
not = "a key"
""\\"""""                                            # quotes before the end
[a . "b c" ]                                         # @a @a."b c"
x.y = [ 1,                                           # @a."b c".x @a."b c".x.y @a."b c".x.y[0]
        # not = 2
        { z = "q\\"}", w = ['}', "]"] },             # @a."b c".x.y[1] @a."b c".x.y[1].z @a."b c".x.y[1].w[1]
]
when = 1979-05-27 07:32:00                           # @a."b c".when
[[t]]                                                # @t @t[0]
n = 1                                                # @t[0].n
[t.q]                                                # @t[0].q
r = '\'                                              # @t[0].q.r
[[t]]                                                # @t[1]
n = 2                                                # @t[1].n
[[t.s]]                                              # @t[1].s @t[1].s[0]
[[t.s]]                                              # @t[1].s[1]
v = 0x1F                                             # @t[1].s[1].v
'''


def test_each_key_stands_on_the_line_that_says_so() -> None:
    from tabulae.spec.problems import written

    parsed = tomllib.loads(MARKED)
    places = {written(path): path for path in paths(parsed)}
    lines = KeyLines(MARKED)
    marks = [
        (name.strip(), number)
        for number, text in enumerate(MARKED.splitlines(), start=1)
        for name in text.split("# @")[1:]
        for name in name.split(" @")
    ]
    assert len(marks) == 21
    for name, number in marks:
        assert lines.of(places[name]) == number, name


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_lines_of_both_kinds_of_file(newline: str) -> None:
    text = newline.join(["a = 1", "", "[s]", "b = [", "  1,", "  2,", "]", "c = 3"])
    lines = KeyLines(text)
    assert [lines.of(p) for p in [("a",), ("s", "b"), ("s", "b", 1), ("s", "c")]] == [1, 4, 6, 8]


def test_a_key_that_is_not_written_stands_where_its_section_does() -> None:
    lines = KeyLines("x = 1\n\n[privacy]\nbudget = '1'\n")
    assert lines.of(("privacy", "ledger")) == 3
    assert lines.of(("method", "noise")) is None


@given(DOCUMENTS)
def test_a_document_writes_nothing_twice(document: dict) -> None:
    assert written_twice(tomli_w.dumps(document)) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('title = "a"\ntitle = "b"\n', "title (line 2): is written twice, first in line 1: remove one"),
        ("[source]\n[x]\n[source]\n", "source (line 3): is written twice, first in line 1: remove one"),
        (
            '[a]\nsex = {}\nage = [\n 1,\n]\n"sex" = [\n 2]\n',
            "a.sex (line 6): is written twice, first in line 2",
        ),
        ("a = { b = 1, b = 2 }\n", "a.b (line 1): is written twice"),
        (
            '[[table]]\nname = "a"\n[[table]]\nname = "b"\nname = "c"',
            "table[1].name (line 5): is written twice, first in line 4",
        ),
        ("a = [ }\na = 1\na = 2\n", "document (line 1): is not TOML"),
        ('a = "x\nb = 1\nb = 1', "document (line 1): is not TOML"),
    ],
)
def test_a_key_that_is_written_twice_is_named_with_both_lines(text: str, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        Spec.from_text(text)
    assert str(caught.value.problems[0]).startswith(told)
