"""Names and origins that the console accepts."""

import pytest

from broker.console.origin import host_of, is_foreign_site, is_own_host, is_same_origin


@pytest.mark.parametrize(
    ("header", "is_own"),
    [
        ("127.0.0.1:9644", True),
        ("[::1]:9644", True),
        ("10.1.2.3", True),
        ("localhost:9644", True),
        ("ottla.localhost", True),
        ("Node-1.Example:9644", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:9644", False),
        ("", False),
        ("[", False),
    ],
)
def test_only_names_of_the_node_are_its_own(header: str, is_own: bool) -> None:
    assert is_own_host(header, {"node-1.example"}) is is_own


def test_unparsable_host_has_no_name() -> None:
    assert host_of("[::1") == ""
    assert host_of("Example:1") == "example"


@pytest.mark.parametrize(
    ("origin", "is_same"),
    [
        (None, True),
        ("http://localhost:9644", True),
        ("https://LOCALHOST:9644", True),
        ("http://localhost:3000", False),
        ("http://localhost", False),
        ("http://evil.example", False),
        ("null", False),
        ("http://[", False),
    ],
)
def test_origin_is_that_of_the_host(origin: str | None, is_same: bool) -> None:
    assert is_same_origin(origin, "localhost:9644") is is_same


@pytest.mark.parametrize(
    ("value", "is_foreign"),
    [(None, False), ("same-origin", False), ("none", False), ("same-site", True), ("cross-site", True), ("x", True)],
)
def test_another_port_of_the_host_is_foreign(value: str | None, is_foreign: bool) -> None:
    assert is_foreign_site(value) is is_foreign
