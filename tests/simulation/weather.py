"""The state of a simulated network: loss, duplication and delay of messages."""

from dataclasses import dataclass, replace
from random import Random


@dataclass(frozen=True, slots=True)
class Weather:
    """Shares of messages that are lost, duplicated and slow; `slow_ms` is the mean delay of slow messages."""

    lost: float = 0.0
    twice: float = 0.0
    slow: float = 0.0
    delay_ms: float = 1.0
    slow_ms: float = 400.0


def draw_weather(random: Random) -> Weather:
    """Return a good, an unreliable or a bad network."""
    fine = Weather(delay_ms=random.choice((1.0, 5.0, 20.0)))
    match random.randrange(4):
        case 0:
            return fine
        case 1:
            return replace(fine, lost=0.02, twice=0.02, slow=0.02)
        case 2:
            return replace(fine, lost=0.1, twice=0.1, slow=0.1)
        case _:
            return replace(fine, lost=0.3, twice=0.1, slow=0.3, slow_ms=random.choice((300.0, 1500.0)))
