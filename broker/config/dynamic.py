"""Rules for changing a broker config while the broker runs (Kafka's ``DynamicBrokerConfig``).

A ConfigError raised here becomes INVALID_REQUEST, except for a value that does not parse: INVALID_CONFIG.
"""

from collections.abc import Mapping

from broker.config.broker_config import BrokerConfig
from broker.config.definitions import LISTENER_PREFIX, broker_key, scope_of
from broker.config.errors import ConfigError
from broker.config.key import Scope

THREAD_COUNTS: tuple[str, ...] = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
"""Thread pools that may at most double or halve in one step, so that a typing error does not stop a broker."""


class NotDynamic(ConfigError):
    """The key cannot be changed in this way, whatever the value."""


def validate_dynamic_change(settings: Mapping[str, str], *, per_broker: bool) -> None:
    """Check the complete dynamic settings of one broker, or of the cluster's default.

    Accept unknown names, as Kafka does: they may belong to a plug-in. Raise NotDynamic or ConfigError.
    """
    for name, text in settings.items():
        _check_scope(name, per_broker=per_broker)
        key = broker_key(name)
        if key is not None:
            key.parse(text, name=name)


def _check_scope(name: str, *, per_broker: bool) -> None:
    scope = scope_of(name)
    if scope is Scope.RESTART:
        raise NotDynamic(name, f"{name} cannot be changed while the broker runs; set it in the configuration file.")
    if scope is Scope.BROKER and not per_broker:
        raise NotDynamic(name, f"{name} can only be set for one broker, not as the cluster's default.")
    if name.startswith("ssl."):
        raise NotDynamic(name, f"{name} can be changed only for one listener, as {LISTENER_PREFIX}NAME.{name}.")


def check_thread_counts(present: BrokerConfig, proposed: BrokerConfig) -> None:
    """Raise ConfigError for a thread count below half or above double the present one."""
    for name in THREAD_COUNTS:
        old, new = present.value(name), proposed.value(name)
        assert isinstance(old, int)
        assert isinstance(new, int)
        if new == old:
            continue
        if new < 1 or new < old // 2 or new > old * 2:
            raise ConfigError(
                name, f"{name} is {new} but one step may change it only to between {max(1, old // 2)} and {old * 2}."
            )
