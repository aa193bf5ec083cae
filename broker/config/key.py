"""A row of the configuration tables: a key and everything that is fixed about it."""

from enum import Enum

from broker.config.errors import ConfigError
from broker.config.rules import Rule
from broker.config.values import ConfigType, Value, parse_value
from protocol.lazy_dataclass import lazy_dataclass


class Scope(Enum):
    """When a broker key may change (Kafka's "dynamic update mode")."""

    RESTART = "read-only"
    CLUSTER = "cluster-wide"
    BROKER = "per-broker"


@lazy_dataclass(frozen=True, slots=True)
class FixedValue:
    """The only value that the node acts on, whatever a key is set to, and the reason, as a clause of the warning."""

    value: str
    reason: str


@lazy_dataclass(frozen=True, slots=True)
class ConfigKey:
    """A key: its type, default in text form (None: unset), rule, scope and documentation.

    ``required`` keys have no default and must be given. ``internal`` keys work but are not described.
    """

    name: str
    kind: ConfigType
    default: str | None
    documentation: str
    rule: Rule | None = None
    scope: Scope = Scope.RESTART
    required: bool = False
    internal: bool = False
    honoured: bool = True
    """Whether the node acts on the value. Loading a broker key that is set and not honoured gives a warning."""
    fixed: FixedValue | None = None
    """The value that stands for every other one; only for keys that are not honoured."""

    @property
    def sensitive(self) -> bool:
        return self.kind is ConfigType.PASSWORD

    def parse(self, text: str, *, name: str | None = None) -> Value:
        """Parse and check ``text``; ``name`` is the spelling to report when it differs (a listener's own key).

        Raise ConfigError.
        """
        try:
            value = parse_value(self.kind, text)
        except ValueError as error:
            raise self._error(name, text, str(error)) from None
        complaint = self.rule(value) if self.rule is not None else None
        if complaint is not None:
            raise self._error(name, text, complaint)
        return value

    def default_value(self) -> Value:
        return None if self.default is None else parse_value(self.kind, self.default)

    def _error(self, name: str | None, text: str, complaint: str) -> ConfigError:
        reported = name or self.name
        shown = "" if self.sensitive else f" is {text!r} but"
        return ConfigError(reported, f"{reported}{shown} {complaint}.")


def by_name(*tables: tuple[ConfigKey, ...]) -> dict[str, ConfigKey]:
    """Join tables into one mapping in table order. A key must not be defined twice."""
    keys = [key for table in tables for key in table]
    joined = {key.name: key for key in keys}
    assert len(joined) == len(keys), "a configuration key is defined twice"
    return joined
