"""Metrics of the standard authorizer."""

from broker.api.pipeline.permission import READ_TOPIC
from broker.authorizer.standard import StandardAuthorizer
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metrics.authorization import authorizer_families
from broker.metrics.family import Family
from tests.support.fakes.clock import ManualClock


def values(families: list[Family]) -> dict[str, float]:
    return {each.name.removeprefix("kafka_server_plugins_"): next(iter(each.read())).value for each in families}


def test_rates_count_super_users_and_remembered_decisions() -> None:
    clock = ManualClock()
    authorizer = StandardAuthorizer({"User:admin"})
    image = MetadataImage()
    authorizer.on_metadata(MetadataDelta(image), image)
    families = authorizer_families(authorizer, clock.monotonic_ms)
    permission = READ_TOPIC.clauses[0][0]
    for principal in ("User:admin", "User:alice", "User:alice"):
        authorizer.is_allowed(principal, "10.0.0.1", permission, "t")
    clock.advance_ms(30_000)
    assert values(families) == {
        "acls_total_count": 0,
        "authorization_allowed_rate_per_minute": 2,
        "authorization_denied_rate_per_minute": 4,
        "authorization_request_rate_per_minute": 6,
    }
    assert next(iter(families[0].read())).labels == {"config": "authorizer.class.name", "class": "StandardAuthorizer"}
