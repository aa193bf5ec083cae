"""Protection from other sites in the user's browser: names of this host, and origins of actions. No IO.

A page of another site can point its own name at this address (DNS rebinding), and can send simple requests here. The
Host header tells the first, and a header that only scripts of the own origin can set prevents the second.
"""

import ipaddress
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

ACTION_HEADER: Final = "x-ottla-console"


def host_of(header: str) -> str:
    """Return the host name of a Host header in lower case, without port; empty if it does not parse."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def is_own_host(header: str, names: Collection[str]) -> bool:
    """Whether a Host header names this machine: an IP address, `localhost`, or one of `names` (lower case)."""
    host = host_of(header)
    if host == "localhost" or host.endswith(".localhost") or host in names:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_foreign_site(sec_fetch_site: str | None) -> bool:
    """Whether a Sec-Fetch-Site header, None without one, tells that another origin's page sent the request.

    "same-site" is another origin too: a page of another port of this host.
    """
    return sec_fetch_site not in (None, "same-origin", "none")


def is_same_origin(origin: str | None, host: str) -> bool:
    """Whether an Origin header, None without one, belongs to the host that the request was sent to."""
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
