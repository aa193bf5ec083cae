"""`ottla dump-log`: Kafka's kafka-dump-log."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import click

from broker.cli.dump import decoders, indexes, state_files
from broker.cli.dump.batches import UNLIMITED, BatchOptions, dump_batches
from broker.cli.dump.decoders import Decoder
from broker.cli.dump.entries import DumpEntry, DumpError, TextLine
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import json_option
from broker.cli.shared.progress import ProgressBar
from protocol.lazy_dataclass import lazy_dataclass

TEXT_FILES = frozenset(
    {
        "leader-epoch-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
        "partition.metadata",
        "meta.properties",
        "quorum-state",
        ".kafka_cleanshutdown",
    }
)
BOOTSTRAP_SNAPSHOT = "bootstrap.checkpoint"
LEFTOVER_SUFFIXES = (".deleted", ".cleaned", ".swap", ".part")

_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


@lazy_dataclass(frozen=True, slots=True)
class _Options:
    batches: BatchOptions
    verify_index_only: bool
    index_sanity_check: bool


@click.command("dump-log", short_help="Print the content of log, index and snapshot files.")
@click.option("--files", required=True, metavar="FILE[,…]", help="Files of a log directory, of any type.")
@click.option("--print-data-log", is_flag=True, help="Print keys and values of records.")
@click.option("--deep-iteration", is_flag=True, help="Print records, not only batches.")
@click.option("--skip-record-metadata", is_flag=True, help="Print only the payload of records.")
@click.option(
    "--max-bytes", type=click.IntRange(min=1), default=UNLIMITED, metavar="N", help="Stop after this many bytes."
)
@click.option(
    "--max-message-size", type=int, metavar="N", help="Accepted for compatibility; batches of any size are read."
)
@click.option("--cluster-metadata-decoder", is_flag=True, help="Decode records of __cluster_metadata.")
@click.option("--offsets-decoder", is_flag=True, help="Decode records of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Decode records of __transaction_state.")
@click.option("--remote-log-metadata-decoder", is_flag=True, help="Decode records of __remote_log_metadata.")
@click.option("--share-group-state-decoder", is_flag=True, help="Decode records of __share_group_state.")
@click.option("--verify-index-only", is_flag=True, help="Check indexes against their log without printing them.")
@click.option("--index-sanity-check", is_flag=True, help="Run the index checks of a node's start.")
@json_option
def dump_log(
    files: str,
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    max_bytes: int,
    max_message_size: int | None,
    cluster_metadata_decoder: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    remote_log_metadata_decoder: bool,
    share_group_state_decoder: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
    as_json: bool,
) -> None:
    """Print the content of log, index and snapshot files (kafka-dump-log). With --json, one document per line."""
    decoder = _decoder(
        {
            decoders.offsets_decoder: offsets_decoder,
            decoders.transaction_log_decoder: transaction_log_decoder,
            decoders.cluster_metadata_decoder: cluster_metadata_decoder,
            decoders.remote_log_metadata_decoder: remote_log_metadata_decoder,
            decoders.share_group_state_decoder: share_group_state_decoder,
        }
    )
    if decoder is None and print_data_log:
        decoder = decoders.decode_text
    batches = BatchOptions(decoder is not None or deep_iteration, decoder, skip_record_metadata, max_bytes)
    options = _Options(batches, verify_index_only, index_sanity_check)
    for name in files.split(","):
        _dump_file(Path(name.strip()), options, as_json)


def _decoder(given: dict[Callable[[], Decoder], bool]) -> Decoder | None:
    chosen = [make for make, is_set in given.items() if is_set]
    if len(chosen) > 1:
        raise click.UsageError("The decoder options exclude each other; give one.")
    return chosen[0]() if chosen else None


def _dump_file(path: Path, options: _Options, as_json: bool) -> None:
    """Print one file. Raises CommandFailed if the file is unreadable or its content does not match its name."""
    try:
        with path.open("rb") as file:
            _print(TextLine(f"Dumping {path}"), path, as_json)
            with ProgressBar(path.name, os.fstat(file.fileno()).st_size, is_bytes=True) as progress:
                for entry in _entries(file, path, options):
                    _print(entry, path, as_json)
                    progress.reach(file.tell())
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}.") from error
    except DumpError as error:
        raise CommandFailed(str(error)) from error


def _print(entry: DumpEntry, path: Path, as_json: bool) -> None:
    if not as_json:
        click.echo(entry.text())
        return
    document = entry.document()
    if document is not None:
        click.echo(json.dumps({"file": str(path)} | document, separators=(",", ":"), ensure_ascii=False))


def _entries(file: BinaryIO, path: Path, options: _Options) -> Iterator[DumpEntry]:
    """Iterate over the content of a file, whose type follows from its name."""
    name = _plain_name(path)
    quiet, sanity = options.verify_index_only, options.index_sanity_check
    match Path(name).suffix:
        case _ if name in TEXT_FILES:
            return state_files.dump_text(file, str(path))
        case ".log":
            return _with_heading(f"Log starting offset: {_base_offset(path)}", file, path, options)
        case ".checkpoint":
            return _with_heading(_snapshot_heading(path), file, path, options)
        case ".index":
            return indexes.dump_offset_index(file, path, _base_offset(path), quiet=quiet, sanity=sanity)
        case ".timeindex":
            return indexes.dump_time_index(file, path, _base_offset(path), quiet=quiet, sanity=sanity)
        case ".txnindex":
            return indexes.dump_transaction_index(file)
        case ".snapshot":
            return state_files.dump_producer_snapshot(file, str(path))
    raise DumpError(f"{path}: the name belongs to no known file type of a log directory.")


def _plain_name(path: Path) -> str:
    """Return the name without the suffixes of files that are being replaced or deleted."""
    name = path.name
    for suffix in LEFTOVER_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _with_heading(heading: str, file: BinaryIO, path: Path, options: _Options) -> Iterator[DumpEntry]:
    yield TextLine(heading)
    yield from dump_batches(file, str(path), options.batches)


def _base_offset(path: Path) -> int:
    stem = path.name.partition(".")[0]
    if not stem.isdigit():
        raise DumpError(f"{path}: the name must begin with the file's base offset.")
    return int(stem)


def _snapshot_heading(path: Path) -> str:
    if path.name == BOOTSTRAP_SNAPSHOT:
        return "KRaft bootstrap snapshot"
    match = _SNAPSHOT_NAME.match(path.name)
    if match is None:
        raise DumpError(f"{path}: the name must consist of the snapshot's end offset and epoch.")
    return f"Snapshot end offset: {int(match[1])}, epoch: {int(match[2])}"
