"""The drawings of `docs/how-it-works.md` and the transcripts that they are made from."""

from tests.docs.drawings import PAGE, drawing, page


def test_drawings_are_current() -> None:
    text = PAGE.read_text()
    assert text.count("generated: tests.docs.drawings") >= 4
    assert page(text) == text, "run: python -m tests.docs.drawings"


def test_messages_are_arrows_between_the_columns_of_nodes() -> None:
    head, *rows = drawing("quorum/elections/first_election", 2).splitlines()
    assert head.split() == ["1", "2", "3"]
    assert "  1100    │────────►│         │         PreVote in epoch 0, log end 0 of epoch 0" in rows
    assert "  1103    │◄────────│         │         Vote granted in epoch 1" in rows


def test_blocks_without_times_are_shown_with_their_commands() -> None:
    assert drawing("isr/shrink_and_expand", 1).startswith("> limits lag=30000 min-isr=2\n")
