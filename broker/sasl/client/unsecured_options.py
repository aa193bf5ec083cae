"""Unsecured tokens of OAUTHBEARER from the options of a JAAS entry (KIP-255).

Errors name the key as it was given and never a value.
"""

import re
from collections.abc import Mapping
from typing import Final

from broker.config.errors import ConfigError
from broker.sasl.client.access_tokens import UnsecuredClaims
from broker.sasl.client.oauthbearer import extension_problem

_CLAIM_OPTION: Final = re.compile("unsecuredLogin(String|Number|List)Claim_(.+)", re.DOTALL)
UNSECURED_EXTENSION: Final = "unsecuredLoginExtension_"
EXTENSION: Final = "extension_"
"""Prefixes of options that name SASL extensions, without and with a token endpoint."""


def parse_extensions(options: Mapping[str, str], prefix: str, jaas_key: str) -> tuple[tuple[str, str], ...]:
    """Return the SASL extensions, whose options begin with a prefix. Raise ConfigError."""
    found = {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}
    problem = extension_problem(found)
    if problem is not None:
        raise ConfigError(jaas_key, f"{jaas_key} cannot be used: {problem}.")
    return tuple(found.items())


def parse_unsecured_claims(options: Mapping[str, str], jaas_key: str) -> UnsecuredClaims:
    """Return the claims of an unsecured token, by Kafka's options. Raise ConfigError."""
    claims = tuple(
        _unsecured_claim(kind=match[1], name=match[2], value=value, jaas_key=jaas_key)
        for option, value in options.items()
        if (match := _CLAIM_OPTION.fullmatch(option))
    )
    principal_claim = options.get("unsecuredLoginPrincipalClaimName", "").strip() or "sub"
    if not any(name == principal_claim and isinstance(value, str) and value.strip() for name, value in claims):
        wanted = f"unsecuredLoginStringClaim_{principal_claim}"
        raise ConfigError(jaas_key, f"{jaas_key} has no {wanted}, which OAUTHBEARER needs.")
    lifetime = options.get("unsecuredLoginLifetimeSeconds", "3600")
    if re.fullmatch(r"[0-9]{1,12}", lifetime) is None:
        raise ConfigError(jaas_key, f"{jaas_key} has an unsecuredLoginLifetimeSeconds that is not a number of seconds.")
    scope_claim = options.get("unsecuredLoginScopeClaimName", "").strip() or "scope"
    return UnsecuredClaims(claims, int(lifetime), principal_claim, scope_claim)


def _unsecured_claim(*, kind: str, name: str, value: str, jaas_key: str) -> tuple[str, str | float | tuple[str, ...]]:
    if name in {"iat", "exp"}:
        raise ConfigError(jaas_key, f"{jaas_key} sets the claim {name}, which is reserved.")
    if kind == "String":
        return name, value
    if kind == "List":  # its first character separates the others
        return name, tuple(value[1:].split(value[0])) if len(value) > 1 else ()
    try:
        return name, float(value)
    except ValueError:
        raise ConfigError(jaas_key, f"{jaas_key} has an unsecured claim {name} that is not a number.") from None
