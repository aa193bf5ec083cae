"""Files that Apache Kafka 4.2 wrote, and the output of its DumpLogSegments for them.

`kafka_files/` comes from a single combined node: topic `d` (plain batches, then gzip, lz4, snappy, zstd, headers, a
tombstone), `g`, the transactional topic `tx` (committed, aborted, committed), and the internal topics; two logs are cut
at a batch boundary to keep them small. `python -m tests.wire.kafka_dumps 'DIRECTORY/*'` (Kafka's jars) regenerates the
expectations.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

FILES = Path(__file__).parent / "kafka_files"
DIGESTS = FILES / "dumps.json"

_LOG = "00000000000000000000.log"
_SNAPSHOT = "__cluster_metadata-0/00000000000000000692-0000000002.checkpoint"

CASES: list[str] = [
    f"--files tx-0/{_LOG}",
    f"--files tx-0/{_LOG} --deep-iteration",
    f"--files tx-0/{_LOG} --print-data-log",
    f"--files tx-0/{_LOG} --print-data-log --skip-record-metadata",
    "--files tx-0/00000000000000000000.txnindex,tx-0/00000000000000000000.timeindex",
    "--files tx-0/00000000000000000000.index",
    "--files tx-0/00000000000000000014.snapshot",
    f"--files g-2/{_LOG} --print-data-log",
    f"--files d-0/{_LOG}",
    f"--files d-0/{_LOG} --print-data-log",
    f"--files d-0/{_LOG} --print-data-log --max-bytes 300",
    "--files d-0/00000000000000000000.index,d-0/00000000000000000000.timeindex",
    "--files d-0/00000000000000000000.index,d-0/00000000000000000000.timeindex --verify-index-only",
    "--files d-0/00000000000000000000.index,d-0/00000000000000000000.timeindex --index-sanity-check",
    "--files d-0/00000000000000000583.snapshot",
    f"--files __consumer_offsets-1/{_LOG} --offsets-decoder",
    f"--files __transaction_state-0/{_LOG} --transaction-log-decoder",
    f"--files __cluster_metadata-0/{_LOG} --cluster-metadata-decoder",
    f"--files __cluster_metadata-0/{_LOG} --cluster-metadata-decoder --skip-record-metadata",
    f"--files {_SNAPSHOT} --cluster-metadata-decoder",
    "--files bootstrap.checkpoint --cluster-metadata-decoder",
    "--files bootstrap.checkpoint",
]
"""Arguments, relative to the directory of the files."""


def digest(output: str) -> str:
    return hashlib.sha256(output.encode()).hexdigest()


def expected_digests() -> dict[str, str]:
    """Return the SHA-256 of Kafka's output, by arguments."""
    loaded: dict[str, str] = json.loads(DIGESTS.read_text())
    return loaded


def kafka_output(class_path: str, arguments: str) -> str:
    command = ["java", "-cp", class_path, "kafka.tools.DumpLogSegments", *arguments.split()]
    return subprocess.run(command, cwd=FILES, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    DIGESTS.write_text(json.dumps({case: digest(kafka_output(sys.argv[1], case)) for case in CASES}, indent=1) + "\n")
