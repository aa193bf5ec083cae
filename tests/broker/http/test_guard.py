"""Credentials of HTTP clients."""

import base64

import pytest

from broker.http.guard import HttpGuard

GUARD = HttpGuard(["# scrapers", "", "prometheus:s3:cret", "  token-1  "])


def basic(text: str) -> bytes:
    return b"Basic " + base64.b64encode(text.encode())


@pytest.mark.parametrize(
    ("authorization", "admitted"),
    [
        (basic("prometheus:s3:cret"), True),
        (b"basic  " + base64.b64encode(b"prometheus:s3:cret"), True),
        (b"Bearer token-1", True),
        (basic("prometheus:other"), False),
        (basic("# scrapers"), False),
        (b"Bearer prometheus:s3:cret", False),
        (b"Basic token-1", False),
        (b"Bearer ", False),
        (b"", False),
        (b"\xff\xfe", False),
        (None, False),
    ],
)
def test_only_known_credentials_are_admitted(authorization: bytes | None, admitted: bool) -> None:
    assert GUARD.admits("/metrics", authorization) is admitted


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_health_checks_stay_open(path: str) -> None:
    assert GUARD.admits(path, None)


def test_file_without_credentials_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no credentials"):
        HttpGuard(["# nobody", " "])


def test_credentials_are_not_shown() -> None:
    assert "cret" not in repr(GUARD)


def test_user_is_the_name_of_the_credentials() -> None:
    assert GUARD.user_of(basic("prometheus:s3:cret")) == "prometheus"
    assert GUARD.user_of(b"Bearer token-1") is None
    assert GUARD.user_of(None) is None
