"""Names of the directories of partitions."""

import pytest

from storage.directories.directory_names import parse_directory_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t-0", ("t", 0)),
        ("a.b-c_d-17", ("a.b-c_d", 17)),
        ("t-3.0123456789abcdef0123456789abcdef-delete", ("t", 3)),
        ("t-3.0123456789abcdef0123456789abcdef-future", ("t", 3)),
        ("a.b-3.0123456789abcdef0123456789abcdef-stray", ("a.b", 3)),
        ("__cluster_metadata-0", ("__cluster_metadata", 0)),
    ],
)
def test_directory_names_give_topic_and_partition(name: str, expected: tuple[str, int]) -> None:
    assert parse_directory_name(name) == expected


@pytest.mark.parametrize("name", ["t", "-0", "t-", "t-x", "t-3-delete", "", "t-3.x-deleted"])
def test_other_directory_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name"):
        parse_directory_name(name)
