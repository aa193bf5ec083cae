"""Bit rot on the disk of a node that is down: in the log, in a snapshot, or in quorum-state."""

from random import Random

from storage.files import base_name
from tests.simulation.quorum.disk import METADATA_DIRECTORY, SimulatedDisk
from tests.simulation.watched_disk import SegmentNode, _intact_batches
from tests.support.fakes.memory_files import _Directory, _FileNode

_ROTTING = (".checkpoint", "quorum-state")


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
