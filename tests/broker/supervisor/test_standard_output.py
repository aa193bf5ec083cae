"""Lines of several nodes on one stream."""

import io

from broker.supervisor.standard_output import MAX_LINE_BYTES, StandardOutput


def test_lines_of_two_nodes_do_not_mix() -> None:
    stream = io.BytesIO()
    first, second = StandardOutput(stream), StandardOutput(stream)
    first.write(b"a begins")
    second.write(b"b\nsecond ")
    first.write(b" and ends\n")
    second.close()
    assert stream.getvalue() == b"b\na begins and ends\nsecond \n"


def test_endless_line_is_passed_on_in_parts() -> None:
    stream = io.BytesIO()
    output = StandardOutput(stream)
    output.write(b"x" * (MAX_LINE_BYTES + 1))
    assert stream.getvalue() == b"x" * (MAX_LINE_BYTES + 1) + b"\n"
