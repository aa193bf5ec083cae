"""`python -m broker.http.probe [PATH]`: checks the health of a node on this machine, for a container's health check.

Imports as little as possible, since it runs every few seconds. Exits with 0 if the node is healthy, with 1 if it is not
or does not answer within two seconds.
"""

import http.client
import os
import re
import sys
from collections.abc import Mapping

READY = "/health/ready"
_TIMEOUT_S = 2.0
_DEFAULT = "127.0.0.1:9644"
_VARIABLE = "KAFKA_OTTLA_HTTP_LISTENER"
_MOUNTED = "/mnt/shared/config/server.properties"
_TLS_VARIABLE = "KAFKA_OTTLA_HTTP_SSL_KEYSTORE_LOCATION"
_TLS_SETTING = re.compile(r"^[ \t]*ottla\.http\.ssl\.keystore\.location[ \t]*[=: \t][ \t]*\S", re.MULTILINE)
_SETTING = re.compile(r"^[ \t]*ottla\.http\.listener[ \t]*[=: \t][ \t]*(\S+)", re.MULTILINE)
_ALL_ADDRESSES = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def listener_of(environ: Mapping[str, str], mounted: str = _MOUNTED) -> str:
    """Return the HTTP listener of this container's node: from its environment, its mounted settings, or the default."""
    if _VARIABLE in environ:
        return environ[_VARIABLE]
    try:
        with open(mounted, encoding="utf-8", errors="replace") as file:
            found = _SETTING.findall(file.read())
    except OSError:
        found = []
    return str(found[-1]) if found else _DEFAULT


def has_tls(environ: Mapping[str, str], mounted: str = _MOUNTED) -> bool:
    """Whether this container's node serves HTTP over TLS."""
    if _TLS_VARIABLE in environ:
        return bool(environ[_TLS_VARIABLE])
    try:
        with open(mounted, encoding="utf-8", errors="replace") as file:
            return _TLS_SETTING.search(file.read()) is not None
    except OSError:
        return False


def answer(listener: str, path: str, *, tls: bool = False) -> tuple[bool, str]:
    """Return whether the node at the listener is healthy, and the text of its response.

    With `tls`, any certificate will do: the node is on this machine, and its certificate may name other hosts.
    """
    host, _, port = listener.rpartition(":")
    bare = host.strip("[]")
    address = _ALL_ADDRESSES.get(bare, bare)
    if tls:
        import ssl  # local import: most probes need none

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            address, int(port), timeout=_TIMEOUT_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(address, int(port), timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status == http.HTTPStatus.OK, response.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"{listener} does not answer: {error}"
    finally:
        connection.close()


if __name__ == "__main__":
    is_well, words = answer(
        listener_of(os.environ), sys.argv[1] if len(sys.argv) > 1 else READY, tls=has_tls(os.environ)
    )
    sys.stdout.write(f"{words}\n")
    sys.exit(not is_well)
