"""Real processes on loopback, driven by real clients. Left out of `make check`, part of `make test`."""
