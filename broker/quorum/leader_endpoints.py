"""The listeners of the current leader, merged from its own requests and from responses of other nodes."""

from broker.quorum.identity import Listeners, SocketAddress


class LeaderEndpoints:
    """Empty while the leader, or the address of the leader, is unknown."""

    def __init__(self, default_listener: str) -> None:
        self._default_listener = default_listener
        self.listeners: Listeners = ()

    @property
    def address(self) -> SocketAddress | None:
        """The address for requests to the leader: the default controller listener, or else its first listener."""
        named = next((each.endpoint for each in self.listeners if each.name == self._default_listener), None)
        return named or (self.listeners[0].endpoint if self.listeners else None)

    def merge(self, listeners: Listeners, *, overrides: bool) -> bool:
        """Add listeners, which replace known ones of equal name if `overrides`. Return whether the address changed."""
        before = self.address
        named, known = ({each.name: each for each in entries} for entries in (listeners, self.listeners))
        self.listeners = tuple(({**known, **named} if overrides else {**named, **known}).values())
        return self.address != before
