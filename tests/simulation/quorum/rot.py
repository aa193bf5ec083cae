"""Bit rot on the disk of a node that is down: in the log, in a snapshot, or in a small file beside them."""

from random import Random

from broker.runtime.quorum.synced_end import FILE_NAME as SYNCED_END_FILE
from broker.runtime.quorum.synced_end import SyncedEndFile
from storage.files import base_name
from tests.simulation.quorum.disk import METADATA_DIRECTORY, SimulatedDisk
from tests.simulation.watched_disk import LoggedBatch, SegmentNode, _intact_batches
from tests.support.fakes.memory_files import _Directory, _FileNode

_ROTTING = (".checkpoint", "quorum-state", SYNCED_END_FILE)


def rot(disk: SimulatedDisk, random: Random) -> str | None:
    """Flip one bit of a durable file; return the file's name, or None without such a file."""
    directory = disk._find(METADATA_DIRECTORY)
    if not isinstance(directory, _Directory):
        return None
    files = [
        (name, node)
        for name, node in sorted(directory.durable.items())
        if isinstance(node, _FileNode) and name.endswith(_ROTTING) and node.content
    ]
    if not files:
        return None
    name, node = random.choice(files)
    if name == "quorum-state":
        position, bit = divmod(random.randrange(8 * len(node.content)), 8)
    else:
        position, bit = random.randrange(len(node.content)), random.randrange(8)
    node.content[position] ^= 1 << bit
    node.durable = bytes(node.content)
    if isinstance(node, SegmentNode):
        node.batches = list(_intact_batches(node.content))
        node.durable_batches = list(node.batches)
        node.same_count = len(node.batches)
    disk.note_rot()
    return base_name(name)


def rot_log(disk: SimulatedDisk, random: Random) -> str | None:
    """Flip one bit of a batch that is known to be synced and is not trimmed; return the file's name, or None.

    The disk's view of the batches stays, because leaders count what the node has acknowledged, also if it is wiped.
    """
    end = SyncedEndFile(disk, METADATA_DIRECTORY).read()
    start = min((each.end_offset for each in disk.snapshot_ids()), default=0)

    def is_known(batch: LoggedBatch) -> bool:
        return batch.end_offset <= end and batch.base_offset >= start

    directory = disk._find(METADATA_DIRECTORY)
    if not isinstance(directory, _Directory):
        return None
    segments = [
        (name, node, indexes)
        for name, node in sorted(directory.entries.items())
        if name.endswith(".log") and isinstance(node, SegmentNode)
        if (indexes := [index for index, each in enumerate(node.durable_batches) if is_known(each)])
    ]
    if not segments:
        return None
    name, node, indexes = random.choice(segments)
    index = indexes[random.randrange(len(indexes))]
    begin = node.durable_batches[index - 1].end_position if index else 0
    position, bit = random.randrange(begin, node.durable_batches[index].end_position), random.randrange(8)
    durable = bytearray(node.durable)
    for content in (node.content, durable):
        content[position] ^= 1 << bit
    node.durable = bytes(durable)
    return name
