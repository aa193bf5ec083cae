"""Filters over ACLs find by name what a scan finds."""

from random import Random

import pytest

from broker.metadata.controller.acl_filter import ANY, AclFilter, AclPattern
from broker.metadata.image.security_image import AclsDelta, AclsImage
from protocol.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from protocol.primitives import Uuid
from tests.broker.authorizer.rules import NAMES, random_entry


def random_image(random: Random) -> AclsImage:
    """Return an image after many changes, some of which undo others."""
    image = AclsImage()
    for _ in range(20):
        delta = AclsDelta(image)
        for _ in range(10):
            delta.add(AccessControlEntryRecord(Uuid(random.randbytes(16)), *random_entry(random)))
        for entry_id in random.sample(sorted(image.entries), len(image.entries) // 4):
            delta.remove(RemoveAccessControlEntryRecord(entry_id))
        image = delta.apply()
    return image


def random_filter(random: Random) -> AclFilter:
    entry = random_entry(random)
    return AclFilter.checked(
        random.choice((ANY, entry.resource_type)),
        random.choice((None, random.choice(NAMES), "abcd", "", "ab" + 30_000 * "c")),
        random.choice([*AclPattern]),
        random.choice((None, entry.principal)),
        random.choice((None, entry.host)),
        random.choice((ANY, entry.operation)),
        random.choice((ANY, entry.permission_type)),
    )


@pytest.mark.parametrize("seed", range(5))
def test_find_equals_a_scan(seed: int) -> None:
    random = Random(seed)
    image = random_image(random)
    found = 0
    for _ in range(300):
        wanted = random_filter(random)
        scanned = [(entry_id, entry) for entry_id, entry in image.entries.items() if wanted.matches(entry)]
        assert sorted(wanted.find(image)) == sorted(scanned)
        found += len(scanned)
    assert found > 100
    assert {entry_id: entry for entry_id, entry in image.named(NAMES)} == dict(image.entries.items())


def test_index_keeps_no_names_without_entries() -> None:
    entry_id, entry = Uuid(bytes(15) + b"\x05"), random_entry(Random(1))
    delta = AclsDelta(AclsImage())
    delta.add(AccessControlEntryRecord(entry_id, *entry))
    image = delta.apply()
    assert [*image.by_name] == [entry.resource_name]
    delta = AclsDelta(image)
    delta.remove(RemoveAccessControlEntryRecord(entry_id))
    assert delta.apply() == AclsImage()
