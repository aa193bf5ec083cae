"""Regular expressions over topic names, in RE2's syntax, which matches in linear time (KIP-848).

A client's expression must not be able to occupy the broker, so Python's backtracking `re` is no alternative.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import re2

from protocol.errors import ErrorCode, KafkaError


def check_pattern(text: str) -> None:
    """Raise KafkaError INVALID_REGULAR_EXPRESSION for a pattern that RE2 does not accept."""
    compiled_pattern(text, "SubscribedTopicRegex")


def compiled_pattern(text: str, field: str = "The pattern") -> Any:
    """Return a compiled pattern. Raise KafkaError INVALID_REGULAR_EXPRESSION, which names the request's `field`."""
    try:
        return _compiled(text)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error
        message = f"{field} `{text}` is not a valid regular expression: {reason}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error


def matching_topics(patterns: Iterable[str], names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return the names that each pattern matches as a whole. Takes time; run off the loop. Patterns must be valid."""
    all_names = list(names)
    matchers = {text: _compiled(text).fullmatch for text in patterns}
    return {text: frozenset(filter(matches, all_names)) for text, matches in matchers.items()}


def _compiled(text: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(text, options)
