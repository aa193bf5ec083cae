"""A clock controlled by the test."""


class ManualClock:
    """Wall clock and monotonic clock advance together with `advance_ms`; `set_wall_ms` changes only the wall clock."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = now_ms
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def advance_ms(self, milliseconds: int) -> None:
        assert milliseconds >= 0, "the clock never goes back"
        self._wall_ms += milliseconds
        self._monotonic_ms += milliseconds

    def set_wall_ms(self, now_ms: int) -> None:
        self._wall_ms = now_ms
