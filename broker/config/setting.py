"""Typed views of configuration keys, declared as class attributes of the owning configuration.

An attribute without arguments stands for the key of the same name with dots: ``num_partitions`` is
``num.partitions``. The declaration is checked against the tables when the module is imported.
"""

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from broker.config.definitions import BROKER_KEYS
from broker.config.values import ConfigType
from protocol.ids import BrokerId

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig

T = TypeVar("T")


class Setting(Generic[T]):
    """A typed view of one key of the owning BrokerConfig."""

    __slots__ = ("_key", "_kinds", "_nullable")

    def __init__(self, *kinds: ConfigType, nullable: bool = False) -> None:
        self._key = ""
        self._kinds = kinds
        self._nullable = nullable

    def __set_name__(self, owner: type["BrokerConfig"], name: str) -> None:
        self._key = name.replace("_", ".")
        key = BROKER_KEYS[self._key]
        assert key.kind in self._kinds, f"{self._key} is a {key.kind.name}"
        assert self._nullable or key.required or key.default is not None, f"{self._key} may be unset"

    def __get__(self, config: "BrokerConfig", owner: type["BrokerConfig"]) -> T:
        return cast(T, config.value(self._key))


def boolean() -> Setting[bool]:
    return Setting(ConfigType.BOOLEAN)


def integer() -> Setting[int]:
    return Setting(ConfigType.INT, ConfigType.SHORT, ConfigType.LONG)


def node_identifier() -> Setting[BrokerId]:
    return Setting(ConfigType.INT)


def optional_integer() -> Setting[int | None]:
    return Setting(ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, nullable=True)


def number() -> Setting[float]:
    return Setting(ConfigType.DOUBLE)


def text() -> Setting[str]:
    return Setting(ConfigType.STRING, ConfigType.CLASS)


def optional_text() -> Setting[str | None]:
    return Setting(ConfigType.STRING, ConfigType.CLASS, ConfigType.PASSWORD, nullable=True)


def items() -> Setting[tuple[str, ...]]:
    return Setting(ConfigType.LIST)
