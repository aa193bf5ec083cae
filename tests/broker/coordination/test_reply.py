"""Parked replies."""

from broker.coordination.reply import Reply


def test_reply_delivers_one_response() -> None:
    answers: list[str] = []
    reply = Reply(answers.append)
    was_open = reply.is_open
    assert reply.complete("first")
    assert (was_open, reply.is_open) == (True, False)
    assert not reply.complete("second")
    assert answers == ["first"]


def test_reply_is_closed_before_it_is_delivered() -> None:
    """The receiver may call the completing code again, which must not see an open reply."""
    seen: list[bool] = []
    reply: Reply[str] = Reply(lambda _: seen.append(reply.is_open))
    reply.complete("answer")
    assert seen == [False]
