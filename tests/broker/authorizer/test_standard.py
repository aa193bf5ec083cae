"""The standard authorizer against a scan of all entries, and over changing images."""

from itertools import product
from random import Random

import pytest
from immutables import Map

from broker.api.pipeline.permission import AclOperation, AclResourceType, Permission
from broker.authorizer.acl_index import EMPTY_INDEX
from broker.authorizer.standard import (
    AuthorizerNotReady,
    StandardAuthorizer,
    parse_super_users,
    standard_authorizer,
)
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.security_image import AccessControlEntry, AclsImage
from protocol.errors import ErrorCode
from protocol.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from protocol.primitives import Uuid
from tests.broker.authorizer import rules
from tests.broker.authorizer.rules import ALL, ALLOW, DENY, LITERAL, PREFIXED

READ_TOPIC = Permission(AclOperation.READ, AclResourceType.TOPIC)
DESCRIBE_TOPIC = Permission(AclOperation.DESCRIBE, AclResourceType.TOPIC)
PEOPLE = ("User:alice", "User:carol")
PLACES = ("10.0.0.1", "10.0.0.3")
ASKED_NAMES = ("*", "a", "abc", "abcd", "z", "hardcode")
ASKED = [Permission(operation, AclResourceType.TOPIC) for operation in rules.OPERATIONS]


def entry(
    name: str,
    pattern_type: int = LITERAL,
    *,
    principal: str = "User:alice",
    host: str = "*",
    operation: int = AclOperation.READ,
    permission: int = ALLOW,
) -> AccessControlEntry:
    return AccessControlEntry(AclResourceType.TOPIC, name, pattern_type, principal, host, operation, permission)


def image_of(*entries: AccessControlEntry) -> MetadataImage:
    by_id = {number_id(number): each for number, each in enumerate(entries)}
    return EMPTY_IMAGE._replace(acls=AclsImage(Map(by_id)))


def number_id(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def authorizer_over(*entries: AccessControlEntry, allow_everyone: bool = False) -> StandardAuthorizer:
    authorizer = StandardAuthorizer({"User:root"}, allow_everyone=allow_everyone)
    authorizer.on_metadata(MetadataDelta(EMPTY_IMAGE), image_of(*entries))
    return authorizer


def reads(authorizer: StandardAuthorizer, name: str, principal: str = "User:alice", host: str = "10.0.0.1") -> bool:
    return authorizer.is_allowed(principal, host, READ_TOPIC, name)


@pytest.mark.parametrize("seed", range(12))
def test_decisions_are_those_of_a_scan_of_all_entries(seed: int) -> None:
    random = Random(seed)
    entries = [rules.random_entry(random) for _ in range(random.choice((0, 1, 3, 8, 30)))]
    allow_everyone = random.random() < 0.5
    authorizer = authorizer_over(*entries, allow_everyone=allow_everyone)
    for principal, host, permission in product(PEOPLE, PLACES, ASKED):
        for name in ASKED_NAMES:
            expected = rules.is_allowed(entries, principal, host, permission, name, allow_everyone=allow_everyone)
            assert authorizer.is_allowed(principal, host, permission, name) == expected, (principal, permission, name)
        some = rules.is_allowed_on_some(entries, principal, host, permission, allow_everyone=allow_everyone)
        assert authorizer.is_allowed_on_some(principal, host, permission) == some, (principal, host, permission)


@pytest.mark.parametrize("seed", range(4))
def test_changed_index_equals_one_built_anew(seed: int) -> None:
    random = Random(seed)
    authorizer, image, present = StandardAuthorizer(frozenset()), EMPTY_IMAGE, dict[int, AccessControlEntry]()
    for step in range(40):
        delta = MetadataDelta(image)
        for number in random.sample(range(60), 5):
            if number in present and random.random() < 0.6:
                del present[number]
                delta.replay(RemoveAccessControlEntryRecord(id=number_id(number)))
            else:
                present[number] = rules.random_entry(random)
                delta.replay(AccessControlEntryRecord(number_id(number), *present[number]))
        image = delta.apply(image.provenance)
        authorizer.on_metadata(delta, image)
        assert authorizer.index == EMPTY_INDEX.changed((), present.values()), step
    for number in list(present):
        delta = MetadataDelta(image)
        delta.replay(RemoveAccessControlEntryRecord(id=number_id(number)))
        image = delta.apply(image.provenance)
        authorizer.on_metadata(delta, image)
    assert authorizer.index == EMPTY_INDEX


def test_entries_of_two_ids_count_until_both_are_removed() -> None:
    same = entry("a")
    twice = EMPTY_INDEX.changed((), [same, same])
    assert twice.changed([same], ()) == EMPTY_INDEX.changed((), [same])
    assert twice.changed([same, same], ()) == EMPTY_INDEX


def test_image_that_does_not_follow_the_former_one_is_taken_as_a_whole() -> None:
    authorizer = authorizer_over(entry("old"))
    authorizer.on_metadata(MetadataDelta(EMPTY_IMAGE), image_of(entry("new")))
    assert [reads(authorizer, name) for name in ("old", "new")] == [False, True]


def test_super_user_may_do_everything_and_deny_does_not_hold_against_it() -> None:
    authorizer = authorizer_over(entry("*", principal="User:*", operation=ALL, permission=DENY))
    assert reads(authorizer, "a", "User:root")
    assert authorizer.is_allowed_on_some("User:root", "10.0.0.1", READ_TOPIC)
    assert not reads(authorizer, "a")


def test_before_the_first_image_only_super_users_are_allowed() -> None:
    authorizer = StandardAuthorizer({"User:root"}, allow_everyone=True)
    assert reads(authorizer, "a", "User:root")
    with pytest.raises(AuthorizerNotReady) as raised:
        reads(authorizer, "a")
    assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    authorizer.on_metadata(MetadataDelta(EMPTY_IMAGE), EMPTY_IMAGE)
    assert reads(authorizer, "a")


def test_everyone_is_allowed_where_a_resource_has_no_entry_of_anyone() -> None:
    authorizer = authorizer_over(entry("a", principal="User:bob"), allow_everyone=True)
    assert [reads(authorizer, name) for name in ("a", "b")] == [False, True]


def test_read_implies_describe_when_allowed_and_not_when_denied() -> None:
    allowed = authorizer_over(entry("a"))
    assert allowed.is_allowed("User:alice", "10.0.0.1", DESCRIBE_TOPIC, "a")
    denied = authorizer_over(entry("a", operation=ALL), entry("a", permission=DENY))
    assert denied.is_allowed("User:alice", "10.0.0.1", DESCRIBE_TOPIC, "a")
    assert not reads(denied, "a")


def test_denied_prefix_covers_allowed_names_and_longer_prefixes() -> None:
    authorizer = authorizer_over(
        entry("abc"), entry("ab", PREFIXED), entry("a", PREFIXED, permission=DENY), entry("b", permission=DENY)
    )
    assert not authorizer.is_allowed_on_some("User:alice", "10.0.0.1", READ_TOPIC)


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users(" User:CN=a,O=b ; ;User:root;") == {"User:CN=a,O=b", "User:root"}


def test_super_user_without_type_is_refused() -> None:
    with pytest.raises(ValueError, match=r'^super.users has "admin" but a principal must have the form TYPE:NAME'):
        standard_authorizer({"super.users": "User:root;admin"})


@pytest.mark.parametrize(("text", "allows"), [("TRUE ", True), ("false", False), ("yes", False)])
def test_allow_everyone_is_read_as_java_reads_booleans(text: str, allows: bool) -> None:
    authorizer = standard_authorizer({"allow.everyone.if.no.acl.found": text})
    authorizer.on_metadata(MetadataDelta(EMPTY_IMAGE), EMPTY_IMAGE)
    assert reads(authorizer, "a") is allows


def test_remembered_decisions_end_with_the_image() -> None:
    authorizer, image = authorizer_over(entry("a")), image_of(entry("a"))
    assert reads(authorizer, "a")
    assert reads(authorizer, "a")
    authorizer.on_metadata(MetadataDelta(image), image_of(entry("a"), entry("a", permission=DENY)))
    assert not reads(authorizer, "a")


def test_decisions_stay_right_when_more_are_asked_than_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.authorizer.standard._REMEMBERED_MAX", 3)
    authorizer = authorizer_over(entry("a", PREFIXED))
    names = [f"{first}{number}" for number in range(5) for first in "ab"] * 2
    assert [reads(authorizer, name) for name in names] == [name.startswith("a") for name in names]


def test_generation_changes_with_the_entries_only() -> None:
    authorizer = authorizer_over(entry("a"))
    first, image = authorizer.generation, image_of(entry("a"), entry("b"))
    authorizer.on_metadata(MetadataDelta(EMPTY_IMAGE), image)
    second = authorizer.generation
    assert second != first
    authorizer.on_metadata(MetadataDelta(image), image)
    assert authorizer.generation == second
