"""SCRAM credentials in the metadata: decoys for unknown users and delegation tokens."""

import asyncio

from immutables import Map

from broker.metadata.controller.scram import MIN_ITERATIONS
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.security_image import ScramCredential, ScramImage, ScramMechanism
from broker.node.security.sasl import ImageCredentials
from broker.sasl.server.scram import DecoyRules
from tests.support.fakes.clock import ManualClock

NUMBER = ScramMechanism.SCRAM_SHA_512
MECHANISM = "SCRAM-SHA-512"


def image(*users: tuple[str, int, int]) -> MetadataImage:
    """Return an image with users: name, iterations, length of the salt."""
    credentials = {
        (int(NUMBER), name): ScramCredential(b"s" * length, b"stored", f"server key of {name}".encode(), iterations)
        for name, iterations, length in users
    }
    return MetadataImage()._replace(scram=ScramImage(Map(credentials)))


def test_decoys_look_like_most_users_and_are_the_same_at_all_brokers() -> None:
    latest = image(("bob", 8192, 26), ("alice", 4096, 20), ("carol", 8192, 26))
    brokers = [ImageCredentials(lambda: latest, None, ManualClock()) for _ in range(2)]
    found = [each.decoys(MECHANISM, is_token=False) for each in brokers]
    assert found == [DecoyRules(b"server key of alice", 26, 8192)] * 2


def test_decoys_follow_changes_of_credentials() -> None:
    images = [image(("alice", 4096, 20))]
    broker = ImageCredentials(lambda: images[-1], "token secret", ManualClock())
    assert broker.decoys(MECHANISM, is_token=False) == DecoyRules(b"token secret", 20, 4096)
    images.append(image(("alice", 16384, 26)))
    assert broker.decoys(MECHANISM, is_token=False) == DecoyRules(b"token secret", 26, 16384)


def test_decoys_of_tokens_look_like_tokens() -> None:
    latest = image(("alice", 16384, 26))
    broker = ImageCredentials(lambda: latest, "token secret", ManualClock())
    assert broker.decoys(MECHANISM, is_token=True) == DecoyRules(b"token secret", 20, MIN_ITERATIONS)
    assert asyncio.run(broker.of_token(MECHANISM, "unknown")) is None


def test_decoys_without_users_have_a_secret_of_the_process() -> None:
    first, second = (ImageCredentials(MetadataImage, None, ManualClock()) for _ in range(2))
    one, other = first.decoys(MECHANISM, is_token=False), second.decoys(MECHANISM, is_token=False)
    assert (one.salt_bytes, one.iterations) == (20, MIN_ITERATIONS)
    assert one.key != other.key
