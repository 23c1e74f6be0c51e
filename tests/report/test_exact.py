"""What the page says of exact counts: first, in words, with what they leave of the promise."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.report.page import check_script
from tests.report.test_page import Page

from tabulae.report import Consequences, ExactView, PromiseView, render_report

SETS = (
    ExactView("exact total: one count", "the register publishes it", 1, "tables/exact total.csv"),
    ExactView("exact age5: age5 (6)", "apportionment", 6, "tables/exact age5.csv"),
)


def words(made_up, *, neighbours: str = "add-remove", exact=SETS, **consequences) -> str:
    told = (
        Consequences(**{"stated": 7, "independent": 6, **consequences}) if consequences is not None else None
    )
    promise = PromiseView("zcdp", Fraction(1, 2), neighbours, "person", exact=exact, consequences=told)  # type: ignore[arg-type]
    page = Page(render_report(made_up(promise=promise)))
    assert page.open == []
    return page.words


def test_exact_counts_come_first_with_their_reasons(made_up):
    text = words(made_up)
    assert text.index("What is exact 7 counts of this release") < text.index("What this release promises")
    assert text.index("The promise of this release does not cover the exact counts") < text.index(
        "“Nearly” is a number"
    )
    assert "exact age5: age5 (6) 6 apportionment" in text
    assert "Only 6 of them are independent: the other one follows" in text
    assert "tables/exact total.csv" in text
    assert "Apart from the exact counts, the published numbers come out nearly the same" in text
    assert "as far as the exact counts do not show it" in text
    assert "The noisy answers, from which every number that is not exact was computed, satisfy" in text


def test_without_exact_counts_the_promise_comes_first(made_up):
    promise = PromiseView("zcdp", Fraction(1, 2), "add-remove", "person")
    text = Page(render_report(made_up(promise=promise))).words
    assert text.index("What this release promises") < text.index(
        "What is exact Nothing. Every published number"
    )
    assert "The published numbers come out nearly the same" in text
    assert "Apart from" not in text


def test_the_two_promises_are_told_apart(made_up):
    within = words(made_up, neighbours="replace-within-invariants", unprotected=("age", "sex"))
    assert "only where that leaves every exact count as it is" in within
    assert "So no promise covers age, sex : the exact counts tell every value of each of them apart" in within
    assert "by another, such that every exact count stays as it is, changes the probability" in within
    assert "does not cover the exact counts" not in within
    replaced = words(made_up, neighbours="replace")
    assert "changing one person’s record to any other changes the probability" in replaced
    assert "no promise covers" not in replaced


def test_what_follows_is_told(made_up):
    text = words(
        made_up,
        published=(("total", 1, 1), ("ages", 3, 820)),
        earlier=(ExactView("exact sex (Spring)", "agreed"),),
        joint=8,
        warnings=("'exact total' follows from 'exact age5'",),
    )
    assert (
        "every count of table total is exact as well; 3 of the 820 counts of table ages are exact as well"
        in text
    )
    assert "Whoever has them all knows whatever these determine together: 8 independent counts in all" in text
    assert "What the ledger promises as a whole covers only what all of them leave open" in text
    assert "exact sex (Spring) agreed" in text
    assert "'exact total' follows from 'exact age5'." in text


def test_only_earlier_releases_were_exact(made_up):
    text = words(
        made_up,
        exact=(),
        stated=0,
        independent=0,
        earlier=(ExactView("exact sex (Spring)", "agreed"),),
        joint=2,
    )
    assert "Nothing in this release by itself" in text
    assert "Earlier releases from the same ledger had stated counts exactly" in text
    assert text.index("What this release promises") < text.index("Nothing in this release by itself")


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "a & b"])
def test_reasons_and_warnings_are_escaped(made_up, hostile):
    sets = (ExactView(hostile, hostile, 2, hostile),)
    told = Consequences(2, 2, ((hostile, 1, 2),), (ExactView(hostile, hostile),), 2, (hostile,), (hostile,))
    promise = PromiseView(
        "pure", Fraction(1), "replace-within-invariants", "person", exact=sets, consequences=told
    )
    text = render_report(made_up(promise=promise))
    page = Page(text)
    check_script(text)
    assert page.words.count(hostile) >= 6
