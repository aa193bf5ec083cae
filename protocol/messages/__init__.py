"""Message classes, generated from `schemas/` by `python -m protocol.generate`: one module per API, one per kind of log.

One class serves every version of its message; which fields a version carries is the codec's business. Edit the schema,
never these modules: a test regenerates them and compares. This file alone is written by hand.
"""

from typing import ClassVar, Protocol

NEVER_FLEXIBLE = 0x8000
"""FLEXIBLE_FROM of a message none of whose versions is flexible (KIP-482): above every version."""


class Message(Protocol):
    """What every generated message class carries beside its fields. API_KEY is -1 where the format has none."""

    SCHEMA: ClassVar[str]
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]
