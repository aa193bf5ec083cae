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


def answer(listener: str, path: str) -> tuple[bool, str]:
    """Return whether the node at the listener is healthy, and the text of its response."""
    host, _, port = listener.rpartition(":")
    bare = host.strip("[]")
    connection = http.client.HTTPConnection(_ALL_ADDRESSES.get(bare, bare), int(port), timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status == http.HTTPStatus.OK, response.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"{listener} does not answer: {error}"
    finally:
        connection.close()


if __name__ == "__main__":
    is_well, words = answer(listener_of(os.environ), sys.argv[1] if len(sys.argv) > 1 else READY)
    sys.stdout.write(f"{words}\n")
    sys.exit(not is_well)
