"""Settings of OAUTHBEARER on a listener, and the check of its tokens (KIP-255, KIP-768)."""

import logging
from collections.abc import Awaitable, Mapping
from typing import Final

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.config.definitions import BROKER_KEYS, LISTENER_PREFIX
from broker.config.errors import ConfigError
from broker.node.security.jwks import KeySetSettings, KeySetSource, key_set_url_problem
from broker.sasl.jaas import parse_jaas
from broker.sasl.server.access_tokens import (
    SignedHeader,
    TokenRules,
    UnsecuredRules,
    check_signed,
    check_unsecured,
    signed_header,
    suitable,
)
from broker.sasl.server.oauthbearer import OAUTHBEARER, CheckedToken, CheckToken, OAuthBearerServer
from protocol.lazy_dataclass import lazy_dataclass

log = logging.getLogger("broker.sasl")

_MODULE: Final = "OAuthBearerLoginModule"
_SIGNED_HANDLER: Final = "OAuthBearerValidatorCallbackHandler"
_UNSECURED_HANDLER: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"


@lazy_dataclass(frozen=True, slots=True)
class SignedTokens:
    """Tokens are checked with the keys of an identity provider."""

    key_set: KeySetSettings
    rules: TokenRules


OAuthBearerSettings = SignedTokens | UnsecuredRules


def oauthbearer_settings(config: BrokerConfig, listener: str) -> OAuthBearerSettings:
    """Return the settings of a listener. Raise ConfigError.

    Without a callback handler, a listener with a key set checks signatures. Kafka would accept unsecured tokens there.
    """
    found = _Found(config, listener)
    handler_key, handler = found.text("sasl.server.callback.handler.class")
    url_key, url = found.text("sasl.oauthbearer.jwks.endpoint.url")
    simple = handler.rpartition(".")[2]
    if simple not in ("", _SIGNED_HANDLER, _UNSECURED_HANDLER):
        raise ConfigError(
            handler_key,
            f"{handler_key} must be Kafka's {_SIGNED_HANDLER} or {_UNSECURED_HANDLER}; others cannot run here.",
        )
    if simple == _UNSECURED_HANDLER or not (simple or url):
        return _unsecured(found, listener)
    if not url:
        raise ConfigError(url_key, f"{url_key} is not set; listener {listener} cannot check tokens without keys.")
    if (problem := key_set_url_problem(url)) is not None:
        raise ConfigError(url_key, f"{url_key} {problem}.")
    key_set = KeySetSettings(
        url,
        found.number("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        found.number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        found.number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    )
    audiences = found.text("sasl.oauthbearer.expected.audience")[1].split(",")
    rules = TokenRules(
        audiences=frozenset(name for each in audiences if (name := each.strip())),
        issuer=found.text("sasl.oauthbearer.expected.issuer")[1] or None,
        clock_skew_ms=1000 * found.number("sasl.oauthbearer.clock.skew.seconds"),
        scope_claim=found.text("sasl.oauthbearer.scope.claim.name")[1],
        subject_claim=found.text("sasl.oauthbearer.sub.claim.name")[1],
    )
    return SignedTokens(key_set, rules)


class _Found:
    """Settings of one listener, by Kafka's precedence: of listener and mechanism, of the listener, of the node."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._find = config.layers.find
        own = f"{LISTENER_PREFIX}{listener.lower()}."
        self._prefixes = (f"{own}{OAUTHBEARER.lower()}.", own, "")
        self.jaas_key = f"{self._prefixes[0]}sasl.jaas.config"

    def text(self, name: str) -> tuple[str, str]:
        """Return the key under which a value is set, or should be, and the value or its default; empty without one."""
        for prefix in self._prefixes:
            if (value := self._find(prefix + name)) is not None:
                return prefix + name, value.strip()
        return name, BROKER_KEYS[name].default or ""

    def number(self, name: str) -> int:
        key, value = self.text(name)
        if not value.isdecimal():
            raise ConfigError(key, f"{key} is not a number of at least 0.")
        return int(value)

    def options(self) -> Mapping[str, str]:
        """Return the options of the listener's JAAS entry. Raise ConfigError."""
        given = self._find(self.jaas_key)
        if given is None:
            return {}
        try:
            module = parse_jaas(given)
        except ValueError as error:
            raise ConfigError(self.jaas_key, f"{self.jaas_key} is not a JAAS entry: {error}.") from None
        if module.name.rpartition(".")[2] != _MODULE:
            raise ConfigError(self.jaas_key, f"{self.jaas_key} must name {_MODULE}.")
        return module.options


def _unsecured(found: _Found, listener: str) -> UnsecuredRules:
    options = found.options()
    skew = options.get("unsecuredValidatorAllowableClockSkewMs", "0")
    if not skew.isdecimal():
        raise ConfigError(
            found.jaas_key, f"{found.jaas_key}: unsecuredValidatorAllowableClockSkewMs is not a number of at least 0."
        )
    log.warning(
        "Listener %s accepts OAuth tokens without signature, which anybody can make; use them for tests.", listener
    )
    return UnsecuredRules(
        principal_claim=options.get("unsecuredValidatorPrincipalClaimName") or "sub",
        scope_claim=options.get("unsecuredValidatorScopeClaimName") or "scope",
        required_scopes=tuple(options.get("unsecuredValidatorRequiredScope", "").split()),
        clock_skew_ms=int(skew),
    )


def build_exchange(check: CheckToken) -> OAuthBearerServer:
    """Return a new exchange that logs refusals."""
    return OAuthBearerServer(check, lambda reason: log.info('refused an OAuth token reason="%s"', reason))


def build_check(settings: OAuthBearerSettings, clock: Clock) -> CheckToken:
    """Return the check of a listener's tokens."""
    if isinstance(settings, SignedTokens):
        return SignedTokenCheck(settings.rules, KeySetSource(settings.key_set, clock), clock)
    rules = settings
    return lambda token: check_unsecured(token, rules, clock.now_ms())


class SignedTokenCheck:
    """Checks tokens with the keys at hand, and reads the keys first if they are old or lack the token's key."""

    def __init__(self, rules: TokenRules, source: KeySetSource, clock: Clock) -> None:
        self._rules = rules
        self._source = source
        self._clock = clock

    def __call__(self, token: str) -> CheckedToken | Awaitable[CheckedToken]:
        """Check a token; see `CheckToken`."""
        header = signed_header(token)
        if self._source.is_fresh and suitable(header, self._source.keys):
            return self._judge(token, header)
        return self._after_refresh(token, header)

    async def _after_refresh(self, token: str, header: SignedHeader) -> CheckedToken:
        await self._source.refresh()
        return self._judge(token, header)

    def _judge(self, token: str, header: SignedHeader) -> CheckedToken:
        keys = suitable(header, self._source.keys)
        return check_signed(token, header, keys, self._rules, self._clock.now_ms())
