"""Words of sentences about changes."""

from broker.metadata.timeline.change import count_of, listed


def test_counts_have_the_right_number() -> None:
    assert [count_of(number, "partition") for number in (0, 1, 2, 1_000)] == [
        "0 partitions",
        "1 partition",
        "2 partitions",
        "1,000 partitions",
    ]


def test_long_lists_are_counted() -> None:
    assert (listed([]), listed((1, 2))) == ("none", "1, 2")
    assert listed(list(range(10))) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
