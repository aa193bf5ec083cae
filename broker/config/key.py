"""One row of the configuration tables: a key and all that is fixed about it."""

from dataclasses import dataclass
from enum import Enum

from broker.config.errors import ConfigError
from broker.config.rules import Rule
from broker.config.values import ConfigType, Value, parse_value


class Scope(Enum):
    """When a broker key may change (Kafka's "dynamic update mode")."""

    RESTART = "read-only"
    CLUSTER = "cluster-wide"
    BROKER = "per-broker"


@dataclass(frozen=True, slots=True)
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

    @property
    def sensitive(self) -> bool:
        return self.kind is ConfigType.PASSWORD

    def parse(self, text: str, *, name: str | None = None) -> Value:
        """Reads ``text``; ``name`` is the spelling to blame (a listener's own key, say) when it is not the key's.

        Raises ConfigError.
        """
        try:
            value = parse_value(self.kind, text)
        except ValueError as error:
            raise self._refusal(name, text, str(error)) from None
        complaint = self.rule(value) if self.rule is not None else None
        if complaint is not None:
            raise self._refusal(name, text, complaint)
        return value

    def default_value(self) -> Value:
        return None if self.default is None else parse_value(self.kind, self.default)

    def _refusal(self, name: str | None, text: str, complaint: str) -> ConfigError:
        blamed = name or self.name
        shown = "" if self.sensitive else f" is {text!r} but"
        return ConfigError(blamed, f"{blamed}{shown} {complaint}.")


def by_name(*tables: tuple[ConfigKey, ...]) -> dict[str, ConfigKey]:
    """Joins tables into one mapping in table order; a key defined twice is a programmer's mistake."""
    keys = [key for table in tables for key in table]
    joined = {key.name: key for key in keys}
    assert len(joined) == len(keys), "a configuration key is defined twice"
    return joined
