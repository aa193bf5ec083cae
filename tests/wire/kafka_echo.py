"""Kafka's own message classes as an oracle: they read our bytes and write them again.

`messages.txt` keeps what they wrote, one line "message version hex" for every message and version, so that the
comparison holds without Java. Rewrite it, where Java and Kafka's jars are, with `python -m tests.wire.kafka_echo DIR`.
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
    """All messages but those that are ours alone."""
    return [(cls, version) for cls, version in all_versions() if getattr(cls, "API_KEY", 0) < FIRST_PRIVATE_KEY]


def sample_lines(seed: int, *, brief: bool = False) -> list[str]:
    """Our encoding of one generated value for every message and version."""
    lines = []
    for index, (cls, version) in enumerate(kafka_versions()):
        value = build(cls, version, SeededChooser(seed * 1_000_003 + index, brief=brief))
        lines.append(f"{cls.__name__} {version} {compiler.encode_bytes(value, version).hex()}")
    return lines


def echo(lines: list[str], jars: Path) -> list[str]:
    """What Kafka's classes make of such lines. `jars` is a directory with Kafka's jars."""
    command = ["java", "-cp", f"{jars}/*", str(PROGRAM)]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> None:
    GOLDEN.write_text("\n".join(echo(sample_lines(0, brief=True), Path(sys.argv[1]))) + "\n")


if __name__ == "__main__":
    main()
