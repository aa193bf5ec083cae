"""Values of benchmark records: random letters, lines of a file, or a counter."""

import random
from collections.abc import Callable

from broker.cli.shared.failure import CommandFailed

SEED = 0
FIRST_LETTER, LETTERS = 65, 26
Payload = Callable[[int], bytes]
"""Function that returns the value of the record with a number."""


def random_payload(size: int) -> Payload:
    """Return values of `size` random letters from A to Z."""
    generator = random.Random(SEED)
    table = bytes(FIRST_LETTER + index % LETTERS for index in range(256))
    return lambda _number: generator.randbytes(size).translate(table)


def file_payload(path: str, delimiter: str) -> Payload:
    """Return values drawn from the parts of a UTF-8 file. Raises CommandFailed."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CommandFailed(f"cannot read {path}: {reason}.") from error
    if not text:
        raise CommandFailed(f"{path} is empty.")
    values = [part.encode() for part in text.removesuffix(delimiter).split(delimiter)]
    generator = random.Random(SEED)
    return lambda _number: generator.choice(values)


def monotonic_payload() -> Payload:
    """Return the number of the record as text."""
    return lambda number: b"%d" % number
