"""The text of a certificate's subject, as Java's `X500Principal.getName()` gives it: RFC 2253, last part first.

Rules for principals are written against this text, so it follows Java's habits beyond the RFC: "=" and "#" are escaped
everywhere, control characters but NUL are not.
"""

from collections.abc import Iterator
from typing import Final

from cryptography import x509

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that have a keyword in RFC 2253; others appear as number and hexadecimal value."""
_ENCODINGS: Final = {
    12: "utf-8",
    19: "ascii",
    20: "latin-1",
    22: "ascii",
    27: "ascii",
    28: "utf-32-be",
    30: "utf-16-be",
}
"""Character sets of the string types of ASN.1, by tag."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_LONG_FORM: Final = 0x80


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER. Raise ValueError if the certificate cannot be parsed."""
    return render_name(x509.load_der_x509_certificate(certificate).subject.public_bytes())


def render_name(name: bytes) -> str:
    """Return the text of a Name in DER."""
    ((_, parts, _),) = _values(name)
    rendered = ["+".join(_attribute(each) for _, each, _ in _values(part)) for _, part, _ in _values(parts)]
    return ",".join(reversed(rendered))


def _attribute(pair: bytes) -> str:
    (_, identifier, _), (tag, content, encoded) = _values(pair)
    number = _object_identifier(identifier)
    keyword, encoding = _KEYWORDS.get(number), _ENCODINGS.get(tag)
    if keyword is None or encoding is None:
        return f"{keyword or number}=#{encoded.hex()}"
    return f"{keyword}={_escape(content.decode(encoding, 'replace'))}"


def _escape(text: str) -> str:
    middle = text.strip(" ")
    before = len(text) - len(text.lstrip(" ")) if middle else len(text)
    after = len(text) - len(middle) - before
    escaped = "".join(f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char for char in middle)
    return "\\ " * before + escaped + "\\ " * after


def _values(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Return tag, content and whole encoding of each value in sequence."""
    start = 0
    while start < len(data):
        tag, size, body = data[start], data[start + 1], start + 2
        if size & _LONG_FORM:
            digits = size & ~_LONG_FORM
            size, body = int.from_bytes(data[body : body + digits], "big"), body + digits
        end = body + size
        yield tag, data[body:end], data[start:end]
        start = end


def _object_identifier(content: bytes) -> str:
    arcs, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & _LONG_FORM:
            arcs.append(value)
            value = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(str(arc) for arc in (first, arcs[0] - 40 * first, *arcs[1:]))
