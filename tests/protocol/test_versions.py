import pytest

from protocol.versions import ALL, HIGHEST, NONE, Versions


@pytest.mark.parametrize(
    ("text", "first", "last"), [("3", 3, 3), ("0-4", 0, 4), ("7+", 7, HIGHEST), ("0+", 0, HIGHEST), ("none", 0, -1)]
)
def test_version_ranges_round_trip(text: str, first: int, last: int) -> None:
    assert Versions.parse(text) == (first, last)
    assert str(Versions.parse(text)) == text


@pytest.mark.parametrize("text", ["", "-1", "4-2", "1-", "+", "1+2", " 1", "40000", "all"])
def test_invalid_version_ranges_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a range of versions"):
        Versions.parse(text)


def test_version_ranges_test_membership_and_inclusion() -> None:
    assert 3 in Versions.parse("3-5")
    assert 6 not in Versions.parse("3-5")
    assert 0 not in NONE
    assert Versions.parse("3-5").within(Versions.parse("2+"))
    assert not Versions.parse("3+").within(Versions.parse("3-5"))
    assert NONE.within(NONE)
    assert Versions.parse("7+").within(ALL)
