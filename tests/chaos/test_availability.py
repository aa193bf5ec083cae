"""Gaps between acknowledgements."""

from tests.chaos.availability import Availability, Fault, Gap, by_fault, describe, percentile


def test_only_long_pauses_are_gaps() -> None:
    availability = Availability(partitions=2, begun_ms=1000)
    for time_ms in (1100, 1500, 2000, 1900, 4000):
        availability.acked(0, time_ms)
    availability.end(4100)
    assert availability.gaps == [Gap(0, 1500, 2000), Gap(0, 2000, 4000), Gap(1, 1000, 4100)]
    assert availability.share(4100) == 1 - (500 + 2000 + 3100) / 6200


def test_acknowledgements_after_the_end_close_no_gap() -> None:
    availability = Availability(partitions=1, begun_ms=1000)
    availability.acked(0, 1400)
    availability.end(1500)
    availability.acked(0, 71_000)
    assert availability.gaps == []


def test_empty_measurement_is_fully_available() -> None:
    assert Availability(partitions=1, begun_ms=5).share(5) == 1.0


def test_gap_belongs_to_the_last_fault_before_it() -> None:
    faults = [Fault("killed", 1, 1000, 2000), Fault("paused", 2, 5000, 6000)]
    gaps = [Gap(0, 100, 700), Gap(0, 900, 3000), Gap(1, 5500, 9000)]
    assert by_fault(gaps, faults) == {"none": [600], "killed": [2100], "paused": [3500]}
    assert by_fault(gaps[:1], []) == {"none": [600]}


def test_gap_description_names_its_faults() -> None:
    faults = [Fault("killed", 1, 1000, 2000), Fault("paused", 2, 5000, 6000), Fault("mute", 3, 7000, 8000)]
    assert describe(Gap(4, 600, 900), faults) == "partition 4, 300 ms from 600 on, before all faults"
    assert describe(Gap(4, 600, 3000), faults) == "partition 4, 2400 ms from 600 on, in fault 1"
    assert describe(Gap(4, 1200, 7500), faults) == "partition 4, 6300 ms from 1200 on, in faults 1 to 3"


def test_percentile_is_nearest_rank() -> None:
    assert [percentile([3, 1, 2], share) for share in (0, 0.5, 0.99)] == [1, 2, 3]
    assert percentile([], 0.5) == 0.0
