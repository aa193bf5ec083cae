"""The client that sends a request to a group, as far as groups need it."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple


class Caller(NamedTuple):
    """A client; `client_host` is Java's text of an address (`java_address`), as clients and records show it."""

    client_id: str
    client_host: str
    api_version: int


@lru_cache(maxsize=1024)
def java_address(host: str) -> str:
    """Return `InetAddress.toString` of an address without a name: a slash, and IPv6 written out in full."""
    try:
        address = ip_address(host)
    except ValueError:
        return f"/{host}"
    if not isinstance(address, IPv6Address):
        return f"/{host}"
    mapped = address.ipv4_mapped
    if mapped is not None:
        return f"/{mapped}"
    return "/" + ":".join(f"{int(part, 16):x}" for part in address.exploded.partition("%")[0].split(":"))
