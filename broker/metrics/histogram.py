"""A histogram of constant size and constant cost per observation: buckets that widen with the value."""

BUCKETS_PER_DOUBLING = 16  # a quantile is then at most 1/16 above the true value
_SHIFT = BUCKETS_PER_DOUBLING.bit_length() - 1
_DOUBLINGS = 40  # up to 2**40 units: twelve days in microseconds
_LAST = (_DOUBLINGS + 1) * BUCKETS_PER_DOUBLING - 1


class Histogram:
    """Counts non-negative integers (microseconds, bytes). `count` and `total` are since start.

    Quantiles cover recent observations: `rotate` drops those before the last rotation but one. A quantile is the upper
    bound of its bucket.
    """

    __slots__ = ("_current", "_previous", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self._current = [0] * (_LAST + 1)
        self._previous = [0] * (_LAST + 1)

    def record(self, value: int) -> None:
        """Count one observation; a value below zero (a clock that was set back) counts as zero."""
        if value < 0:
            value = 0
        self.count += 1
        self.total += value
        if value < BUCKETS_PER_DOUBLING:
            self._current[value] += 1
            return
        shift = value.bit_length() - _SHIFT - 1
        self._current[min(_LAST, (shift << _SHIFT) + (value >> shift))] += 1

    def rotate(self) -> None:
        """Begin a new period; quantiles still include the last one."""
        self._previous = self._current
        self._current = [0] * (_LAST + 1)

    def quantiles(self, wanted: tuple[float, ...]) -> list[int]:
        """Return the values at ascending quantiles from 0 to 1, zeros without recent observations."""
        counts = [current + previous for current, previous in zip(self._current, self._previous, strict=True)]
        seen, index, found = counts[0], 0, []
        recent = sum(counts)
        for quantile in wanted:
            rank = max(1.0, quantile * recent)
            while seen < rank and index < _LAST:
                index += 1
                seen += counts[index]
            found.append(_upper_bound(index) if recent else 0)
        return found


def _upper_bound(index: int) -> int:
    """Return the largest value that `record` puts into bucket `index`."""
    if index < BUCKETS_PER_DOUBLING:
        return index
    shift = (index >> _SHIFT) - 1
    base = BUCKETS_PER_DOUBLING + index % BUCKETS_PER_DOUBLING
    return ((base + 1) << shift) - 1
