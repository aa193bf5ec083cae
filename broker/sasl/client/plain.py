"""PLAIN, the client's side (RFC 4616): user name and password in one message."""

from broker.sasl.mechanism import AuthenticationFailed


class PlainClient:
    """A `ClientExchange`. The authorization id is empty: the server derives it from the user name."""

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password

    def first(self) -> bytes:
        """Return the only message."""
        return f"\0{self._username}\0{self._password}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return None. Raise AuthenticationFailed for a challenge, which PLAIN does not have."""
        if challenge:
            raise AuthenticationFailed("the server sent a challenge, which PLAIN does not have")
        return None
