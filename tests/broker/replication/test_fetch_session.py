"""The follower's fetch session (KIP-227): the next request's id and epoch after each kind of answer."""

from broker.replication.fetch_session import FetchSessionHandler, SessionOutcome
from protocol.errors import ErrorCode


def opened(session_id: int = 7) -> FetchSessionHandler:
    session = FetchSessionHandler()
    assert session.on_answer(0, session_id, fits=True) is SessionOutcome.USABLE
    return session


def carried(session: FetchSessionHandler) -> tuple[int, int]:
    return session.id, session.epoch


def test_first_request_opens_a_session() -> None:
    assert carried(FetchSessionHandler()) == (0, 0)
    assert FetchSessionHandler().is_full


def test_answers_open_the_session_and_increment_its_epoch() -> None:
    session = opened()
    assert carried(session) == (7, 1)
    session.on_answer(0, 7, fits=True)
    assert carried(session) == (7, 2)
    assert not session.is_full


def test_session_epoch_wraps_to_1() -> None:
    session = opened()
    session.epoch = 2**31 - 1
    session.on_answer(0, 7, fits=True)
    assert carried(session) == (7, 1)


def test_session_id_0_closes_the_session() -> None:
    session = opened()
    assert session.on_answer(0, 0, fits=True) is SessionOutcome.USABLE
    assert carried(session) == (0, 0)


def test_only_an_answer_to_a_full_request_declines_the_session() -> None:
    session, declined = opened(), []
    for session_id in (0, 0, 8):
        session.on_answer(0, session_id, fits=True)
        declined.append(session.is_declined)
    assert declined == [False, True, False]


def test_unknown_session_is_not_closed_again() -> None:
    session = opened()
    assert session.on_answer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, fits=True) is SessionOutcome.LOST
    assert carried(session) == (0, 0)


def test_request_after_a_wrong_epoch_closes_the_session_and_opens_the_next() -> None:
    session = opened()
    assert session.on_answer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, fits=True) is SessionOutcome.LOST
    assert carried(session) == (7, 0)


def test_failed_request_leads_to_a_full_request() -> None:
    session = opened()
    session.on_failure()
    assert carried(session) == (7, 0)
    assert session.is_full


def test_answer_that_does_not_fit_loses_the_session() -> None:
    session = opened()
    assert session.on_answer(0, 7, fits=False) is SessionOutcome.LOST
    assert carried(session) == (7, 0)


def test_second_loss_in_a_row_is_a_failure() -> None:
    session = opened()
    session.on_answer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, fits=True)
    assert session.on_answer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, fits=True) is SessionOutcome.FAILED
    session.on_answer(0, 8, fits=True)
    assert session.on_answer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, fits=True) is SessionOutcome.LOST


def test_topic_id_errors_and_other_errors_are_failures_at_once() -> None:
    for code in (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR, 9999):
        assert opened().on_answer(code, 0, fits=True) is SessionOutcome.FAILED
