"""What HDMM's evaluation prints, what it should have printed, and the least errors known when this was written.

RMSE at epsilon = 1 (Laplace noise) and at (1, 1e-6) (Gaussian noise), by workload and method; Table 3 prints total
squared errors at unit noise. ``PAPER`` holds the columns of HDMM's own operators and of its two baselines,
``CORRECTED`` the values that replace wrong ones (docs/methods/hdmm.md says why), ``FOUND`` the least errors known
before, from any method.
"""

from __future__ import annotations

Noise = str
Cell = tuple[str, Noise]
"""Name of the workload, noise."""

SIZES = (64, 256, 1024, 4096)


def _by_size(name: str, noise: Noise, identity: str, opt0: str) -> dict[Cell, dict[str, float]]:
    return {
        (f"{name}-{n}", noise): {"identity": float(i), "opt0": float(o)}
        for n, i, o in zip(SIZES, identity.split(), opt0.split(), strict=True)
    }


def _by_method(noise: Noise, rows: dict[str, str]) -> dict[Cell, dict[str, float]]:
    methods = ("identity", "workload-alone", "kron", "union-each", "marginals", "hdmm")
    return {
        (name, noise): dict(zip(methods, map(float, row.split()), strict=True)) for name, row in rows.items()
    }


PAPER: dict[Cell, dict[str, float]] = {
    # Table 3, total squared error at unit noise
    ("example-15", "laplace"): {
        "workload": 206_964, "identity": 300_000, "kron": 213_270, "union-each": 85_070, "marginals": 62_886,
    },
    # Tables 4 and 5
    **_by_size("all-range", "laplace", "6.63 13.11 26.15 52.27", "5.55 8.07 11.08 14.38"),
    **_by_size("prefix", "laplace", "8.06 16.03 32.02 64.01", "5.32 7.35 9.58 12.20"),
    **_by_size("width-32", "laplace", "8.00 8.00 8.00 8.00", "5.88 6.34 6.41 6.46"),
    **_by_size("permuted", "laplace", "6.63 13.11 26.15 52.27", "5.55 8.06 11.08 14.37"),
    **_by_size("all-range", "gaussian", "19.82 39.18 78.13 156.14", "9.73 12.26 14.85 17.46"),
    **_by_size("prefix", "gaussian", "24.08 47.89 95.64 191.21", "8.87 10.66 12.49 14.32"),
    **_by_size("width-32", "gaussian", "23.90 23.90 23.90 23.90", "8.74 9.93 10.08 10.11"),
    **_by_size("permuted", "gaussian", "19.82 39.18 78.13 156.14", "9.73 12.26 14.85 17.45"),
    # Tables 6 and 7
    **_by_method("laplace", {
        "sf1": "23.20 70.71 7.30 30.55 9.56 7.30",
        "sf1-plus": "32.50 141.42 10.23 42.31 12.88 10.23",
        "cps-marginals": "5.38 45.25 4.85 4.85 4.84 4.84",
        "cps-prefix": "98.06 56568.54 40.59 40.59 69.38 40.59",
        "adult-3d": "5352117.26 664.68 872.58 306.33 225.35 225.35",
        "adult-2d-prefix": "475602516.60 138602.83 1119.16 484.07 553.56 484.07",
        "loans-small": "3330650.46 265.87 654.35 204.17 100.92 100.92",
        "loans-small-prefix": "15340082.96 11013.90 1707.67 485.67 288.29 288.29",
    }),
    **_by_method("gaussian", {
        "sf1": "69.33 29.87 9.80 75.66 14.31 9.80",
        "sf1-plus": "97.08 42.25 10.90 84.16 15.88 10.90",
        "cps-marginals": "16.08 23.90 7.85 7.85 7.86 7.85",
        "cps-prefix": "292.93 844.94 29.48 29.49 104.09 29.48",
        "adult-3d": "15988375.02 91.59 82.42 899.04 46.44 46.44",
        "adult-2d-prefix": "1420766966.19 1322.58 126.17 639.43 296.12 126.17",
        "loans-small": "9949649.11 57.92 81.51 631.40 34.91 34.91",
        "loans-small-prefix": "45825415.90 372.83 132.43 994.04 99.72 99.72",
    }),
}  # fmt: skip

CORRECTED: dict[tuple[str, Noise, str], float] = {
    ("sf1", "gaussian", "union-each"): 29.73,
    ("sf1-plus", "gaussian", "union-each"): 33.03,
    ("adult-3d", "gaussian", "union-each"): 52.566,
    ("adult-2d-prefix", "gaussian", "union-each"): 89.189,
    ("loans-small", "gaussian", "union-each"): 49.597,
    ("loans-small-prefix", "gaussian", "union-each"): 81.039,
    ("loans-small", "laplace", "union-each"): 211.363,
    ("adult-2d-prefix", "gaussian", "hdmm"): 89.189,
    ("loans-small-prefix", "gaussian", "hdmm"): 81.039,
}

FOUND: dict[Cell, float] = {
    ("all-range-64", "laplace"): 5.5524,
    ("all-range-256", "laplace"): 8.0535,
    ("all-range-1024", "laplace"): 11.0401,
    ("all-range-4096", "laplace"): 14.38,
    ("prefix-64", "laplace"): 5.3221,
    ("prefix-256", "laplace"): 7.3239,
    ("prefix-1024", "laplace"): 9.5372,
    ("prefix-4096", "laplace"): 12.20,
    ("width-32-64", "laplace"): 5.88,
    ("width-32-256", "laplace"): 6.34,
    ("width-32-1024", "laplace"): 6.41,
    ("all-range-64", "gaussian"): 9.7261,
    ("all-range-256", "gaussian"): 12.2576,
    ("all-range-1024", "gaussian"): 14.8501,
    ("all-range-4096", "gaussian"): 17.46456,
    ("prefix-64", "gaussian"): 8.8712,
    ("prefix-256", "gaussian"): 10.6648,
    ("prefix-1024", "gaussian"): 12.4858,
    ("prefix-4096", "gaussian"): 14.3208,
    ("width-32-64", "gaussian"): 8.6981,
    ("width-32-256", "gaussian"): 9.9210,
    ("sf1", "laplace"): 7.30,
    ("sf1-plus", "laplace"): 10.23,
    ("cps-marginals", "laplace"): 4.764,
    ("cps-prefix", "laplace"): 40.540,
    ("adult-3d", "laplace"): 220.30,
    ("adult-2d-prefix", "laplace"): 484.07,
    ("loans-small", "laplace"): 95.45,
    ("loans-small-prefix", "laplace"): 276.10,
    ("sf1", "gaussian"): 8.071,
    ("sf1-plus", "gaussian"): 8.967,
    ("cps-marginals", "gaussian"): 7.8517,
    ("cps-prefix", "gaussian"): 29.4694,
    ("adult-3d", "gaussian"): 45.0562,
    ("adult-2d-prefix", "gaussian"): 70.851,
    ("loans-small", "gaussian"): 34.6698,
    ("loans-small-prefix", "gaussian"): 53.687,
}
