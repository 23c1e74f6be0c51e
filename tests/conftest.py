"""One hypothesis profile for everybody: the same examples on every machine, no deadline on a shared core."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=50,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# HYPOTHESIS_PROFILE=explore looks for new examples: run it by hand after changing an algorithm.
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
# The small releases, of tables, of groups and of areas, that app and command-line tests share; and one Spark session.
pytest_plugins = ["tests.village", "tests.guild", "tests.duchy", "tests.local_spark"]

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
