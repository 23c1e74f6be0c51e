"""Whether two releases may be compared, and what to know of them."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import ReleaseError
from ..release.folder import check_sums
from ..release.read import Release
from ..spec.series import mark_of


def comparable(earlier: Release, later: Release) -> list[str]:
    """What to know of two releases that are compared, in sentences.

    Raises:
        ReleaseError: they cannot be compared: altered files, one release twice, the wrong order, or other kinds.
    """
    for release in (earlier, later):
        if faults := check_sums(release.path):
            told = "\n".join(f"  {fault}" for fault in faults)
            raise ReleaseError(f"{release.path} is not as it was published, and is not compared:\n{told}")
    names = [str(release.about["release_id"]) for release in (earlier, later)]
    if names[0] == names[1]:
        raise ReleaseError(
            f"{earlier.path} and {later.path} are the same release: name an earlier one and a later one"
        )
    if names[1] in {link.release_id for link in earlier.series}:
        raise ReleaseError(
            f"{earlier.path} follows {later.path}: name the earlier release first, and the later one second"
        )
    if earlier.spec.kind != later.spec.kind or earlier.level != later.level:
        raise ReleaseError(
            f"{earlier.path} and {later.path} are releases of different kinds, or have intervals of different levels: "
            "they publish no table in common that can be compared"
        )
    return [*_series_notes(earlier, later), *_unit_notes(earlier, later), *_value_notes(earlier, later)]


def _series_notes(earlier: Release, later: Release) -> Iterator[str]:
    own, chain = earlier.series[-1], later.series
    link = next((each for each in chain if each.release_id == own.release_id), None)
    if link is not None:
        if link.sha256sums != mark_of(earlier.path).sha256sums:
            raise ReleaseError(
                f"{earlier.path} is not the release that {later.path} follows: its SHA256SUMS differs; name the folder "
                "that was published"
            )
        if any(each.kind == "correction" for each in chain[chain.index(link) + 1 :]):
            yield (
                "The later release corrects an earlier one: a change is what was corrected together with the noise of "
                "both, and where its interval holds 0 noise alone explains it."
            )
        return
    if {each.release_id for each in earlier.series} & {each.release_id for each in chain}:
        yield "Neither release follows the other, but both follow the same one: their series forks."
        return
    yield (
        "The releases are not of one series: nothing that they publish says that both count the same kind of people. "
        "Intervals hold for what each of them counted."
    )
    if earlier.descriptor["created"] > later.descriptor["created"]:
        yield "The release named first was made after the other: name them the other way round to look forward."


def _unit_notes(earlier: Release, later: Release) -> Iterator[str]:
    was, now = earlier.spec, later.spec
    if was.unit != now.unit:
        yield f"The promise is to one {was.unit} in the earlier release, and to one {now.unit} in the later one."
    rules = [None if each.unit_id is None else each.rows_per_unit for each in (was, now)]
    if rules[0] != rules[1]:
        told = ["all rows" if each is None else f"at most {each} rows of each {now.unit}" for each in rules]
        yield (
            f"The earlier release counts {told[0]}, and the later one {told[1]}: a part of each change may be that."
        )


def _value_notes(earlier: Release, later: Release) -> Iterator[str]:
    """Values that are bounded or rounded otherwise: their sums move without any record that does."""
    was, now = ({each.name: each for each in release.spec.domain.measured} for release in (earlier, later))
    for name in was.keys() & now.keys():
        told = [
            "from {} to {} in {:,} steps".format(*value.ends, value.steps) for value in (was[name], now[name])
        ]
        if told[0] != told[1] and not was[name].is_seat:
            yield (
                f"{name} counts {told[0]} in the earlier release, and {told[1]} in the later one: a part of "
                "each change of its sums may be that."
            )
