"""Share sessions: epochs, partitions, limits, and connections that end (KIP-932)."""

from broker.share.sessions import FINAL_EPOCH, ShareFetchSession, ShareMember, ShareSession, ShareSessions
from protocol.errors import ErrorCode
from protocol.primitives import Uuid

TOPIC = Uuid(bytes([7]) * 16)
ANN, BOB = ShareMember("g", "ann"), ShareMember("g", "bob")


def opened(
    sessions: ShareSessions,
    epoch: int,
    *added: int,
    member: ShareMember = ANN,
    forgotten: tuple[int, ...] = (),
    acknowledges: bool = False,
    connection: str = "c",
) -> ShareSession | ErrorCode:
    return sessions.fetch(
        ShareFetchSession(
            member,
            epoch,
            connection,
            tuple((TOPIC, index) for index in added),
            tuple((TOPIC, index) for index in forgotten),
            acknowledges,
        )
    )


def indexes(session: ShareSession | ErrorCode) -> list[int]:
    assert isinstance(session, ShareSession)
    return [index for _, index in session.partitions]


def test_session_keeps_its_partitions_over_requests() -> None:
    sessions = ShareSessions(10)
    assert indexes(opened(sessions, 0, 0, 1)) == [0, 1]
    assert indexes(opened(sessions, 1, 2, forgotten=(0,))) == [1, 2]
    assert sessions.partition_count == 2


def test_request_out_of_order_is_refused() -> None:
    sessions = ShareSessions(10)
    opened(sessions, 0, 0)
    assert opened(sessions, 2) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert opened(sessions, 1, member=BOB) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert isinstance(opened(sessions, 1), ShareSession)


def test_first_request_has_no_acknowledgements() -> None:
    sessions = ShareSessions(10)
    assert opened(sessions, 0, 0, acknowledges=True) is ErrorCode.INVALID_REQUEST
    assert sessions.acknowledge(ANN, 0) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_acknowledgements_share_the_epochs_of_fetches() -> None:
    sessions = ShareSessions(10)
    opened(sessions, 0, 0)
    assert isinstance(sessions.acknowledge(ANN, 1), ShareSession)
    assert isinstance(opened(sessions, 2), ShareSession)
    assert isinstance(sessions.acknowledge(ANN, FINAL_EPOCH), ShareSession)


def test_epoch_after_the_highest_is_1() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions, 0)
    assert isinstance(session, ShareSession)
    session.epoch = 2**31 - 1
    opened(sessions, 2**31 - 1)
    assert session.epoch == 1


def test_full_broker_refuses_sessions_but_replaces_its_own() -> None:
    sessions = ShareSessions(1)
    opened(sessions, 0, 0)
    assert opened(sessions, 0, member=BOB) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert indexes(opened(sessions, 0, 5)) == [5]
    assert (len(sessions), sessions.partition_count) == (1, 1)


def test_connection_takes_only_its_own_sessions_along() -> None:
    sessions = ShareSessions(10)
    opened(sessions, 0, 0)
    opened(sessions, 0, 0, connection="later")
    assert sessions.disconnect("c", [ANN]) == []
    assert [session.member for session in sessions.disconnect("later", [ANN, BOB])] == [ANN]
    assert not sessions.has_group("g")


def test_each_request_begins_with_another_partition() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions, 0, 0, 1)
    assert isinstance(session, ShareSession)
    first = session.take_turn()[0]
    session.advance()
    assert session.take_turn()[0] != first
