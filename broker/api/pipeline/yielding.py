"""Requests that let the requests of other connections go first (`broker.net.turns`).

The records of a transaction yield, EndTxn does not: the end of a transaction moves the last stable offset, which
read_committed consumers wait for. Without that order a commit would wait for the records of all transactions whose
requests arrived before it.
"""

from typing import Final

from broker.net.request import Request
from protocol.api_keys import ApiKey

_PRODUCE: Final = int(ApiKey.PRODUCE)
_FLEXIBLE_FROM: Final = 9  # a compact transactional id: null is one zero byte; before, two bytes of ones


def yields(request: Request) -> bool:
    """Whether the request carries records of a transaction."""
    header, body = request.header, request.body
    if header.api_key != _PRODUCE or not len(body):
        return False
    return body[0] != 0 if header.api_version >= _FLEXIBLE_FROM else body[0] < 0x80
