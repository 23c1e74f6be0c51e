"""The areas of a synthetic population: states, counties, tracts, blocks, places, and areas that span states.

Tables of blocks are made by DuckDB from a seed: their populations are lognormal, and a quarter of them empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np

STATES = tuple(f"{code:02d}" for code in range(1, 57) if code not in (3, 7, 14, 43, 52))
PUERTO_RICO = "72"
REGIONS, KINDS, AREA_KINDS = 4, 12, 16
STREAM = 2**40  # numbers of one seed are hashes of whole numbers from a multiple of this on
BLOCK_COLUMNS = "state varchar, text varchar, place varchar, area varchar, kind int, people bigint"
BLOCKS = """
create table block as
with listed as (
    select unnest(range(blocks)) as k, first + k as i, * from tract
), placed as (
    select *,
        (i - state_first + 0.5) / state_blocks as along,
        (i + 0.5) / (select sum(blocks) from tract) * 2 * {areas} as run,
        {uneven} as uneven,
        (hash(4 * i + {seed}) + 1.0) / 18446744073709551617.0 as u,
        hash(4 * i + {seed} + 1) / 18446744073709551616.0 as v
    from listed
), named as (
    select i, state, kind, u, v, uneven,
        printf('%s|%03d|%06d|%04d|', state, county, tract, 1000 + k) as text,
        case when i % 4 < 3 or not uneven
            then printf('%05d', 10000 + case when uneven
                then (floor(places * ln(1 + 1095.6 * along) / 7)::bigint * 48611 % places)::int
                else floor(places * along)::int end)
            else '99999' end as place,
        case when {areas} > 0
                and run - floor(run) < greatest({share}, 2.0 * {areas} / (select sum(blocks) from tract))
            then printf('%04d', 1 + ((floor(run)::int + 1) // 2) % {areas}) else '9999' end as area
    from placed
), weighed as (
    select *, case when uneven and hash(4 * i + {seed} + 2) % 100 < 28 then 0
        when uneven then exp(1.1 * sqrt(-2 * ln(u)) * cos(2 * pi() * v)) else 1 + v end as weight
    from named
)
select i, state, text, place, area,
    case when area = '9999' then kind else {kinds} + area::int % {area_kinds} end::int as kind,
    round({people} * sum(weight) over (order by i) / sum(weight) over ())::bigint as until
from weighed
"""


@dataclass(frozen=True)
class Sizes:
    """How many areas of each kind one country has; ``blocks`` counts each tract's, or is their mean."""

    states: tuple[str, ...]
    counties: int
    tracts: int
    blocks: int
    places: int
    areas: int
    uneven: bool = True

    @classmethod
    def of_48_blocks(cls) -> Sizes:
        """2 states, 4 counties, 12 tracts, 8 places and 6 areas that may span states, all alike."""
        return cls(("01", "02"), 4, 12, 48, 8, 6, uneven=False)

    @classmethod
    def nation(cls, scale: float = 1.0) -> tuple[Sizes, Sizes]:
        """The 50 states and the capital, and Puerto Rico, with a share ``scale`` of their areas; all the states."""

        def some(number: int, least: int) -> int:
            return max(least, round(number * scale))

        states = len(STATES)
        counties, islands = some(3143, states), some(78, 2)
        tracts, wards = some(84_000, counties), some(940, islands)
        blocks = some(8_100_000, 4 * tracts)
        return (
            cls(STATES, counties, tracts, blocks, some(32_000, states), some(700, 6)),
            cls((PUERTO_RICO,), islands, wards, some(42_000, 4 * wards), some(260, 2), 0),
        )


def split(total: int, weights: np.ndarray) -> np.ndarray:
    """Whole numbers of sum ``total``, one or more each, about in proportion."""
    ends = np.round(np.cumsum(weights) / weights.sum() * (total - weights.size)).astype(np.int64)
    return np.diff(ends, prepend=0) + 1


def tracts(sizes: Sizes, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """One row a tract: its codes, how many blocks it has, its kind, and where its state begins among the blocks."""

    def uneven(n: int, spread: float) -> np.ndarray:
        return rng.lognormal(0, spread, n) if sizes.uneven else np.ones(n)

    large = uneven(len(sizes.states), 0.7)
    counties = split(sizes.counties, np.sqrt(large))
    state = np.repeat(np.arange(len(sizes.states)), counties)
    number = np.arange(sizes.counties) - np.repeat(np.cumsum(counties) - counties, counties)
    by_county = split(sizes.tracts, (large / counties)[state] * uneven(sizes.counties, 0.8))
    county = np.repeat(np.arange(sizes.counties), by_county)
    ward = np.arange(sizes.tracts) - np.repeat(np.cumsum(by_county) - by_county, by_county)
    blocks = split(sizes.blocks, uneven(sizes.tracts, 0.4))
    favour = np.minimum(rng.zipf(1.6, sizes.tracts), KINDS) - 1
    in_state = np.bincount(state[county], weights=blocks, minlength=len(sizes.states)).astype(np.int64)
    places = split(sizes.places, in_state.astype(float))
    return {
        "state": np.array(sizes.states)[state[county]],
        "county": 1 + 2 * number[county],
        "tract": 100 * (1 + ward),
        "blocks": blocks,
        "first": np.cumsum(blocks) - blocks,
        "kind": KINDS * (state[county] % REGIONS) + favour,
        "state_first": (np.cumsum(in_state) - in_state)[state[county]],
        "state_blocks": in_state[state[county]],
        "places": places[state[county]],
    }


def blocks(con: duckdb.DuckDBPyConnection, sizes: Sizes, people: int, seed: int) -> None:
    """Append one country's blocks to the table ``blocks``: text, kind and how many people live there."""
    con.register("arrays", tracts(sizes, np.random.default_rng([seed, 0, len(sizes.states)])))
    con.execute("create or replace table tract as select * from arrays")
    con.unregister("arrays")
    con.execute("drop table if exists block")
    con.execute(
        BLOCKS.format(
            areas=sizes.areas,
            share=0.015 if sizes.uneven else 0.5,
            uneven=sizes.uneven,
            seed=STREAM * (2 * seed + (PUERTO_RICO in sizes.states)),
            kinds=KINDS * REGIONS,
            area_kinds=AREA_KINDS,
            people=people,
        )
    )
    con.execute(
        "insert into blocks select state, text, place, area, kind, until - coalesce(lag(until) over (order by i), 0) "
        "from block order by i"
    )
