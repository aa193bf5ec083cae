"""SASL of a node's listeners: the mechanisms of each, with their credentials (KIP-43, KIP-84, KIP-103)."""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final

from broker.api.pipeline.audit import AuditTrail
from broker.api.pipeline.sasl import SaslServices
from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.config.definitions import LISTENER_PREFIX
from broker.config.errors import ConfigError
from broker.metadata.controller.delegation_tokens import token_hmac
from broker.metadata.controller.scram import MIN_ITERATIONS, scram_keys
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.security_image import ScramCredential, ScramImage, ScramMechanism
from broker.sasl.client.login_settings import PLAIN, SASL_PROTOCOLS
from broker.sasl.jaas import parse_jaas
from broker.sasl.mechanism import ServerExchange
from broker.sasl.server.mechanisms import OfferedMechanism
from broker.sasl.server.oauthbearer import OAUTHBEARER
from broker.sasl.server.plain import PlainServer
from broker.sasl.server.scram import DecoyRules, ScramServer, StoredCredential, TokenCredential
from protocol.lazy_dataclass import lazy_dataclass

if TYPE_CHECKING:
    from broker.node.security.oauthbearer import OAuthBearerSettings

MECHANISMS_KEY: Final = "sasl.enabled.mechanisms"
HANDLER_KEY: Final = "sasl.server.callback.handler.class"
SCRAM: Final = {mechanism.name.replace("_", "-"): mechanism for mechanism in ScramMechanism}
_SERVED: Final = (PLAIN, *SCRAM, OAUTHBEARER)
_HANDLERS: Final = ("PlainServerCallbackHandler", "ScramServerCallbackHandler")
_PLAIN_MODULE: Final = "PlainLoginModule"
_USER_OPTION: Final = "user_"
_SALT_BYTES: Final = 20
_DECOY_KEY_BYTES: Final = 32


@lazy_dataclass(frozen=True, slots=True)
class _ListenerSettings:
    """The mechanisms of a listener, each with the longest session in ms, and what PLAIN and OAUTHBEARER need."""

    max_reauth_ms: Mapping[str, int]
    passwords: Mapping[str, str] = field(repr=False)
    tokens: "OAuthBearerSettings | None"


class NodeSasl:
    """The SASL side of the listeners that a node binds."""

    def __init__(self, config: BrokerConfig) -> None:
        """Read the settings of all SASL listeners. Raise ConfigError."""
        self._config = config
        self._listeners = {
            listener.name: _settings(config, listener.name)
            for listener in (*config.client_listeners, *config.controller_listeners)
            if listener.protocol in SASL_PROTOCOLS
        }

    def services(
        self, image: Callable[[], MetadataImage], clock: Clock, audit: AuditTrail | None
    ) -> dict[str, SaslServices]:
        """Return what connections need, by listener name. `image` returns the latest metadata."""
        credentials = ImageCredentials(image, self._config.delegation_token_secret_key, clock)
        return {
            name: SaslServices(
                _offered(settings, credentials, clock),
                clock,
                asyncio.sleep,
                self._config.connection_failed_authentication_delay_ms,
                audit,
            )
            for name, settings in self._listeners.items()
        }


class ImageCredentials:
    """SCRAM credentials of users and delegation tokens in the metadata; see `ScramLookup`."""

    def __init__(self, image: Callable[[], MetadataImage], token_secret: str | None, clock: Clock) -> None:
        self._image = image
        self._token_secret = token_secret
        self._clock = clock
        self._own_key = secrets.token_bytes(_DECOY_KEY_BYTES)
        self._decoys: tuple[ScramImage, dict[int, DecoyRules]] = (ScramImage(), {})

    def decoys(self, mechanism: str, *, is_token: bool) -> DecoyRules:
        """Return decoys of the most frequent kind. All brokers know the same ones, from secrets that they share.

        The rules are found again when a credential has changed, by a look at all of them.
        """
        if is_token:
            return DecoyRules((self._token_secret or "").encode() or self._own_key, _SALT_BYTES, MIN_ITERATIONS)
        image, number = self._image().scram, SCRAM[mechanism]
        if self._decoys[0] is not image:
            self._decoys = (image, {})
        known = self._decoys[1]
        if number not in known:
            known[number] = decoy_rules(image, number, self._token_secret, self._own_key)
        return known[number]

    def of_user(self, mechanism: str, user: str) -> StoredCredential | None:
        return self._image().scram.credentials.get((SCRAM[mechanism], user))

    async def of_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Derive the credential of a token from its HMAC, on a thread: the derivation takes milliseconds."""
        token = self._image().delegation_tokens.tokens.get(token_id)
        if self._token_secret is None:
            return None
        # An unknown id takes as long as a known one, so that the time does not tell which ids exist.
        secret = token_hmac(self._token_secret, token_id)
        credential = await asyncio.to_thread(_token_credential, SCRAM[mechanism], secret)
        if token is None:
            return None
        expiry_ms = min(token.expiration_timestamp_ms, token.max_timestamp_ms)
        return TokenCredential(credential, token.owner, expiry_ms) if expiry_ms > self._clock.now_ms() else None


def decoy_rules(image: ScramImage, mechanism: ScramMechanism, token_secret: str | None, own_key: bytes) -> DecoyRules:
    """Return the rules of decoys for users without credentials of a mechanism.

    Their secret is the token secret, else the server key of the first credential by name, which all brokers have and
    clients have not, else `own_key` of this process.
    """
    found = {name: each for (number, name), each in image.credentials.items() if number == mechanism}
    if not found:
        return DecoyRules(own_key if token_secret is None else token_secret.encode(), _SALT_BYTES, MIN_ITERATIONS)
    kinds = Counter((each.iterations, len(each.salt)) for each in found.values())
    (iterations, salt_bytes), _ = max(kinds.items(), key=lambda kind: (kind[1], kind[0]))
    key = found[min(found)].server_key if token_secret is None else token_secret.encode()
    return DecoyRules(key, salt_bytes, iterations)


def _token_credential(mechanism: ScramMechanism, secret: bytes) -> ScramCredential:
    """Return the credential of a token, whose password is its HMAC in base64. The salt is the same at all brokers."""
    digest = "sha256" if mechanism is ScramMechanism.SCRAM_SHA_256 else "sha512"
    salt = hmac.digest(secret, b"salt", digest)[:_SALT_BYTES]
    salted = hashlib.pbkdf2_hmac(digest, base64.b64encode(secret), salt, MIN_ITERATIONS)
    keys = scram_keys(mechanism, salted)
    return ScramCredential(salt, keys.stored_key, keys.server_key, MIN_ITERATIONS)


def _offered(settings: _ListenerSettings, credentials: ImageCredentials, clock: Clock) -> dict[str, OfferedMechanism]:
    return {
        mechanism: OfferedMechanism(_begin(mechanism, settings, credentials, clock), max_reauth_ms)
        for mechanism, max_reauth_ms in settings.max_reauth_ms.items()
    }


def _begin(
    mechanism: str, settings: _ListenerSettings, credentials: ImageCredentials, clock: Clock
) -> Callable[[], ServerExchange]:
    """Return what opens an exchange of a mechanism."""
    if mechanism == PLAIN:
        return lambda: PlainServer(settings.passwords)
    if mechanism == OAUTHBEARER:
        assert settings.tokens is not None
        from broker.node.security.oauthbearer import build_check, build_exchange

        check = build_check(settings.tokens, clock)
        return lambda: build_exchange(check)
    return lambda: ScramServer(mechanism, credentials)


def _settings(config: BrokerConfig, listener: str) -> _ListenerSettings:
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    given = config.layers.find(prefix + MECHANISMS_KEY)
    key = MECHANISMS_KEY if given is None else prefix + MECHANISMS_KEY
    names = config.sasl_enabled_mechanisms if given is None else tuple(each.strip() for each in given.split(","))
    mechanisms = [name for name in names if name]
    for name in mechanisms:
        if name not in _SERVED:
            served = ", ".join(_SERVED)
            raise ConfigError(
                key, f"{key} enables {name} for listener {listener}, but this version serves {served} only."
            )
        if name != OAUTHBEARER:
            _check_handler(config, prefix, name)
    if not mechanisms:
        raise ConfigError(key, f"{key} enables no mechanism for listener {listener}.")
    return _ListenerSettings(
        {name: _max_reauth_ms(config, prefix, name) for name in mechanisms},
        _passwords(config, prefix, listener) if PLAIN in mechanisms else {},
        _tokens(config, listener) if OAUTHBEARER in mechanisms else None,
    )


def _tokens(config: BrokerConfig, listener: str) -> "OAuthBearerSettings":
    # Local import: other mechanisms need neither PyJWT nor cryptography, which take 45 ms and 5 MB.
    from broker.node.security.oauthbearer import oauthbearer_settings

    return oauthbearer_settings(config, listener)


def _check_handler(config: BrokerConfig, prefix: str, mechanism: str) -> None:
    """Raise ConfigError for a callback handler that would replace the check of PLAIN or SCRAM."""
    key = f"{prefix}{mechanism.lower()}.{HANDLER_KEY}"
    given = config.layers.find(key)
    if given is not None and given.rpartition(".")[2] not in _HANDLERS:
        raise ConfigError(key, f"{key} names a class that cannot run here; leave it out.")


def _max_reauth_ms(config: BrokerConfig, prefix: str, mechanism: str) -> int:
    name = "connections.max.reauth.ms"
    for key in (f"{prefix}{mechanism.lower()}.{name}", prefix + name):
        given = config.layers.find(key)
        if given is not None:
            try:
                return int(given)
            except ValueError:
                raise ConfigError(key, f"{key} is not a number of milliseconds.") from None
    return config.connections_max_reauth_ms


def _passwords(config: BrokerConfig, prefix: str, listener: str) -> dict[str, str]:
    """Return the passwords of PLAIN by user. Raise ConfigError."""
    key = f"{prefix}plain.sasl.jaas.config"
    given = config.layers.find(key)
    if given is None:
        raise ConfigError(key, f'{key} is not set; listener {listener} needs its options user_NAME="password".')
    try:
        module = parse_jaas(given)
    except ValueError as error:
        raise ConfigError(key, f"{key} is not a JAAS entry: {error}.") from None
    if module.name.rpartition(".")[2] != _PLAIN_MODULE:
        raise ConfigError(key, f"{key} does not name the login module {_PLAIN_MODULE}.")
    return {
        name.removeprefix(_USER_OPTION): password
        for name, password in module.options.items()
        if name.startswith(_USER_OPTION)
    }
