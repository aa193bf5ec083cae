"""Hypothesis profiles: few and deterministic examples by default, many with OTTLA_EXHAUSTIVE=1 in the environment."""

import os

from hypothesis import HealthCheck, settings

EXHAUSTIVE = os.environ.get("OTTLA_EXHAUSTIVE") == "1"

few_examples = settings(
    max_examples=300 if EXHAUSTIVE else 4,
    derandomize=not EXHAUSTIVE,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
"""Settings of tests that run once per message and version."""

more_examples = settings(few_examples, max_examples=5000 if EXHAUSTIVE else 100)
"""Settings of tests that run once."""
