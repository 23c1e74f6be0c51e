"""What ResidualPlanner(+), HDMM and QuerySmasher reach on the workloads of ``benchmarks.peers``, by workload.

RMSE of one query at privacy cost 1, which is Gaussian noise at rho = 1/2.

* ``planner``, ``hdmm``: ResidualPlanner+ (Xiao, He, Toksoz, Ding, Zhang, Kifer, arXiv 2305.08175), the tables of RMSE
  for marginals (there ResidualPlanner, ResidualPlanner+ and the SVD bound are one number) and for prefixes, as
  QuerySmasher's published scripts quote them; its Table 1 has them again.
* ``smasher``: QuerySmasher (He, Xiao, Bai, Gu, Ding, Yin, Kifer, arXiv 2604.00868), not printed numbers but those that
  its published code reached on one thread; ``STOPPED`` are the workloads on which it was stopped, and when.
"""

from __future__ import annotations

_WAYS = ("1-way", "2-way", "3-way", "up to 3-way")


def _rows(kind: str, column: str, rows: dict[str, str]) -> dict[tuple[str, str], float]:
    return {
        (f"{data} {kind}, {ways}", column): float(value)
        for data, row in rows.items()
        for ways, value in zip(_WAYS, row.split(), strict=True)
    }


PRINTED: dict[tuple[str, str], float] = {
    **_rows("marginals", "planner", {
        "CPS": "1.744 2.035 2.048 2.276", "Adult": "3.047 6.359 10.515 10.665", "Loans": "2.875 5.634 8.702 8.876",
    }),
    **_rows("prefixes", "planner", {
        "CPS": "3.081 5.823 7.302 7.570", "Adult": "5.081 17.274 45.223 45.174",
        "Loans": "4.681 14.502 34.168 34.144",
    }),
    **_rows("prefixes", "hdmm", {
        "CPS": "3.347 6.625 8.634 8.623", "Adult": "5.648 21.111 60.025 61.613",
        "Loans": "5.127 17.149 42.938 44.338",
    }),
}  # fmt: skip

SMASHER: dict[str, float] = {
    "CPS prefixes, 1-way": 3.1354,
    "CPS prefixes, 2-way": 6.1921,
    "CPS prefixes, 3-way": 7.8865,
    "CPS prefixes, up to 3-way": 8.1472,
    "Adult prefixes, 1-way": 5.0480,
    "Adult prefixes, 2-way": 17.2379,
    "Loans prefixes, 1-way": 4.6704,
    "Loans prefixes, 2-way": 14.6131,
    "[10]^40, marginals": 23.476554,
    "[10]^40, prefixes": 33.6953,
    "[10]^40, ranges": 41.0784,
    "[10]^40, circular ranges": 39.772143,
    "[10]^40, a + b <= c": 28.1899,
    "[10]^40, |a - b| <= c": 30.9139,
    "[10]^40, random rows": 104.4293,
    "[20]^40, prefixes": 49.3855,
    "[10]^10, mixed": 20.4988,
}

STOPPED: dict[str, str] = {
    "[20]^40, ranges": "> 300 s, 11.7 GB",
    "[20]^40, a + b <= c": "> 240 s",
    "[20]^40, |a - b| <= c": "> 240 s",
}
