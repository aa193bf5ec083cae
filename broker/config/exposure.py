"""Warnings about a start that gives more than its operator may want: open listeners, and passwords on command lines.

Pure: looks at a configuration only.
"""

import ipaddress
from collections.abc import Iterable

from broker.config.broker_config import BrokerConfig
from broker.config.definitions import LISTENER_PREFIX, broker_key
from broker.config.listeners import ConfiguredListener


def exposure_warnings(config: BrokerConfig) -> list[str]:
    """Return one sentence about listeners, and one about HTTP, that let in everybody from other machines."""
    bound = (*config.client_listeners, *config.controller_listeners)
    is_open = [each for each in bound if not is_loopback(each.host) and not _authenticates(config, each)]
    found = []
    if is_open:
        names = " and ".join(f"{each.name} ({each.host or '*'}:{each.port})" for each in is_open)
        verb = "lets" if len(is_open) == 1 else "let"
        noun = "Listener" if len(is_open) == 1 else "Listeners"
        found.append(
            f"{noun} {names} {verb} in every client of the network without authentication; "
            "bind loopback addresses, or use SASL or client certificates (docs/security.md)."
        )
    http = config.http_listener
    if http is not None and not is_loopback(http.host) and not config.value("ottla.http.credentials.location"):
        found.append(
            f"ottla.http.listener ({http.host or '*'}:{http.port}) shows metrics to the whole network without "
            "authentication; bind a loopback address, or set ottla.http.credentials.location."
        )
    return found


def override_warnings(overrides: Iterable[str]) -> list[str]:
    """Return one sentence per password in ``KEY=VALUE`` texts of a command line, never the password itself."""
    names = dict.fromkeys(override.partition("=")[0].strip() for override in overrides)
    return [
        f"--override {name} shows a password to every user of this machine; set it in the configuration file."
        for name in names
        if is_secret(name)
    ]


def is_secret(name: str) -> bool:
    """Whether a setting holds a password. Settings of plug-ins count when their name says so."""
    key = broker_key(name)
    if key is not None:
        return key.sensitive
    words = name.lower()
    return any(word in words for word in ("password", "secret", "jaas", "passphrase", "credential", "private.key"))


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only. An empty host means every interface."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _authenticates(config: BrokerConfig, listener: ConfiguredListener) -> bool:
    if listener.protocol == "SSL":
        name = "ssl.client.auth"
        own = config.layers.find(f"{LISTENER_PREFIX}{listener.name.lower()}.{name}")
        return (own or config.layers.find(name) or "none").strip().lower() == "required"
    return listener.protocol.startswith("SASL_")
