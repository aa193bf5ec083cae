"""A member of a share group. Its assignment has the form of a consumer group's, and nothing to revoke."""

from protocol.lazy_dataclass import lazy_dataclass

SHARE_MEMBER_ID_MAX_LENGTH = 36


@lazy_dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """A member as its record describes it."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
