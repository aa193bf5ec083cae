"""The authorizer of a node, by its class name (KIP-11)."""

from typing import Final

from broker.api.pipeline.authorization import Authorizer
from broker.authorizer.standard import STANDARD_AUTHORIZER, StandardAuthorizer, standard_authorizer
from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.metrics.authorization import authorizer_families
from broker.metrics.family import Family
from broker.node.metadata import MetadataPart
from storage.tiered.loading.import_paths import imported, made

_KEY: Final = "authorizer.class.name"


def build_authorizer(config: BrokerConfig) -> Authorizer | None:
    """Return the configured authorizer; None when everyone may do everything.

    An implementation of one's own is called with the static settings by key. Raises ConfigError.
    """
    name, settings = config.authorizer_class_name.strip(), config.layers.static
    if not name:
        return None
    try:
        if name == STANDARD_AUTHORIZER:
            return standard_authorizer(settings)
        factory = imported(_KEY, name, None, STANDARD_AUTHORIZER)
        authorizer = made(_KEY, name, lambda: factory(settings))
    except ValueError as error:
        raise ConfigError(_KEY, str(error)) from error
    if not isinstance(authorizer, Authorizer):
        raise ConfigError(_KEY, f"{_KEY} names {name}, which has no methods is_allowed and is_allowed_on_some.")
    return authorizer


def follow_metadata(authorizer: Authorizer | None, metadata: MetadataPart) -> None:
    """Let the standard authorizer, or one derived from it, follow the ACLs of the metadata."""
    if isinstance(authorizer, StandardAuthorizer):
        metadata.driver.add_publisher(authorizer)


def authorization_families(authorizer: Authorizer | None, clock: Clock) -> list[Family]:
    """Return the metrics of the standard authorizer, or of one derived from it."""
    return authorizer_families(authorizer, clock.monotonic_ms) if isinstance(authorizer, StandardAuthorizer) else []


def early_listeners(config: BrokerConfig, authorizer: Authorizer | None) -> frozenset[str]:
    """Return the controller listeners that are served before the first metadata image.

    A custom authorizer is ready once it is made. A quorum of several nodes forms only over early listeners.
    """
    names = frozenset(each.name for each in config.controller_listeners)
    early = config.value("early.start.listeners")
    if not isinstance(early, tuple) or not isinstance(authorizer, StandardAuthorizer):
        return names
    return names & {name.upper() for name in early}
