"""Rules for a single configuration value, beyond its type.

A rule takes the parsed value and returns the end of a sentence ("must be at least 1") when the value breaks it, else
None. ``cross_checks`` owns the rules between several keys.
"""

import re
from collections.abc import Callable

from broker.config.values import Value

Rule = Callable[[Value], str | None]

_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+")
_DURATION = re.compile(r"-?P(?=.)(-?\d+D)?(T(?=.)(-?\d+H)?(-?\d+M)?(-?\d+(\.\d{1,9})?S)?)?", re.IGNORECASE)


def at_least(low: float) -> Rule:
    def rule(value: Value) -> str | None:
        return None if _number(value) >= low else f"must be at least {low}"

    return rule


def between(low: float, high: float) -> Rule:
    def rule(value: Value) -> str | None:
        return None if low <= _number(value) <= high else f"must be from {low} to {high}"

    return rule


def between_or(low: float, high: float, other: float) -> Rule:
    def rule(value: Value) -> str | None:
        fits = low <= _number(value) <= high or value == other
        return None if fits else f"must be from {low} to {high}, or {other}"

    return rule


def one_of(*allowed: str) -> Rule:
    def rule(value: Value) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}"

    return rule


def one_of_ignoring_case(*allowed: str) -> Rule:
    def rule(value: Value) -> str | None:
        return None if str(value).upper() in allowed else f"must be one of {', '.join(allowed)} (in any case)"

    return rule


def items_of(*allowed: str) -> Rule:
    """Every item of the list must be one of ``allowed``; the list may be empty."""

    def rule(value: Value) -> str | None:
        assert isinstance(value, tuple)
        return None if set(value) <= set(allowed) else f"may only list {', '.join(allowed)}"

    return rule


def some_of(*allowed: str) -> Rule:
    """Like items_of, with at least one item."""
    items = items_of(*allowed)

    def rule(value: Value) -> str | None:
        return items(value) if value else f"must list at least one of {', '.join(allowed)}"

    return rule


def non_empty(value: Value) -> str | None:
    """Check that a text or list is not empty."""
    return None if value else "must not be empty"


def throttled_replicas(value: Value) -> str | None:
    """Check for ``*`` or ``partition:broker`` items (the two ``*.replication.throttled.replicas`` topic keys)."""
    assert isinstance(value, tuple)
    if value == ("*",) or all(_THROTTLED_REPLICA.fullmatch(item) for item in value):
        return None
    return "must be * or a list of partition:broker pairs"


def offset_reset_strategy(value: Value) -> str | None:
    """Check ``share.auto.offset.reset`` (KIP-932): latest, earliest, or by_duration with an ISO-8601 duration."""
    text = str(value)
    prefix = "by_duration:"
    if text in ("latest", "earliest"):
        return None
    if text.startswith(prefix) and _DURATION.fullmatch(text[len(prefix) :]) and "-" not in text:
        return None
    return "must be latest, earliest, or by_duration: followed by a duration such as PT1H"


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return value
