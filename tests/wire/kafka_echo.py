"""Kafka's own message classes as a reference: they decode Ottla's bytes and encode them again.

`messages.txt` keeps their output, one line "message version hex" for every message and version, so that the comparison
needs no Java. Rewrite it with `python -m tests.wire.kafka_echo DIR`, which needs Java and Kafka's jars.
"""

import subprocess
import sys
from pathlib import Path

from protocol import compiler
from protocol.api_keys import FIRST_PRIVATE_KEY
from protocol.messages import Message
from tests.protocol.values import SeededChooser, all_versions, build

DIRECTORY = Path(__file__).parent
PROGRAM = DIRECTORY / "KafkaEcho.java"
GOLDEN = DIRECTORY / "messages.txt"


def kafka_versions() -> list[tuple[type[Message], int]]:
    """Return all messages except Ottla's own."""
    return [(cls, version) for cls, version in all_versions() if getattr(cls, "API_KEY", 0) < FIRST_PRIVATE_KEY]


def sample_lines(seed: int, *, brief: bool = False) -> list[str]:
    """Return Ottla's encoding of one generated value for every message and version."""
    lines = []
    for index, (cls, version) in enumerate(kafka_versions()):
        value = build(cls, version, SeededChooser(seed * 1_000_003 + index, brief=brief))
        lines.append(f"{cls.__name__} {version} {compiler.encode_bytes(value, version).hex()}")
    return lines


def echo(lines: list[str], jars: Path) -> list[str]:
    """Return the output of Kafka's classes for such lines. `jars` is a directory with Kafka's jars."""
    command = ["java", "-cp", f"{jars}/*", str(PROGRAM)]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> None:
    GOLDEN.write_text("\n".join(echo(sample_lines(0, brief=True), Path(sys.argv[1]))) + "\n")


if __name__ == "__main__":
    main()
