"""What the whole suite runs under.

A pull request is judged by one run of it, so the run is the same every time: hypothesis draws the same examples, and no
example fails for the time that it takes on a busy machine. New ones are drawn with OTTLA_EXHAUSTIVE=1.
"""

from hypothesis import HealthCheck, settings

from tests.protocol.profile import EXHAUSTIVE

settings.register_profile(
    "suite",
    max_examples=1000 if EXHAUSTIVE else 100,
    derandomize=not EXHAUSTIVE,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")
