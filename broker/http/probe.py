"""`python -m broker.http.probe [PATH]`: asks a node on this machine whether it is well, for the health check of a
container. Imports next to nothing: it runs every few seconds.

Exit 0 if the node says so, 1 if not, or if it does not answer within two seconds.
"""

import http.client
import os
import sys

READY = "/health/ready"
_TIMEOUT_S = 2.0
_DEFAULT = "127.0.0.1:9644"
_VARIABLE = "KAFKA_OTTLA_HTTP_LISTENER"
_ALL_ADDRESSES = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def answer(listener: str, path: str) -> tuple[bool, str]:
    """Whether the node that listens there is well, and what it says."""
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
    is_well, words = answer(os.environ.get(_VARIABLE, _DEFAULT), sys.argv[1] if len(sys.argv) > 1 else READY)
    sys.stdout.write(f"{words}\n")
    sys.exit(not is_well)
