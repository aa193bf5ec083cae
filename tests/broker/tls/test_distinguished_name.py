"""Subjects as Java's `X500Principal.getName()` of JDK 17 printed them."""

import pytest
from cryptography import x509
from cryptography.x509 import NameAttribute as Part
from cryptography.x509 import NameOID, RelativeDistinguishedName

from broker.tls.distinguished_name import render_name, subject_of
from tests.support.certificates import CertificateAuthority


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            [
                [Part(NameOID.COUNTRY_NAME, "DE")],
                [Part(NameOID.ORGANIZATION_NAME, 'Acme, "Inc" a=b+c<d>;e\\f#g')],
                [Part(NameOID.COMMON_NAME, " #lead trail ")],
            ],
            r"CN=\ \#lead trail\ ,O=Acme\, \"Inc\" a\=b\+c\<d\>\;e\\f\#g,C=DE",
        ),
        (
            [
                [Part(NameOID.DOMAIN_COMPONENT, "org")],
                [Part(NameOID.USER_ID, "u1"), Part(NameOID.COMMON_NAME, "müller Ω")],
                [Part(NameOID.EMAIL_ADDRESS, "a@b.c")],
                [Part(NameOID.SERIAL_NUMBER, "77")],
                [Part(NameOID.STREET_ADDRESS, "S 1")],
                [Part(NameOID.GIVEN_NAME, "G")],
            ],
            "2.5.4.42=#0c0147,STREET=S 1,2.5.4.5=#13023737,1.2.840.113549.1.9.1=#16056140622e63,"
            "UID=u1+CN=müller Ω,DC=org",
        ),
        ([[Part(NameOID.COMMON_NAME, "a\0b\nc")]], "CN=a\\00b\nc"),
        ([[Part(NameOID.COMMON_NAME, "   ")]], r"CN=\ \ \ "),
        ([], ""),
    ],
)
def test_subjects_are_rendered_as_java_renders_them(parts: list[list[Part[str]]], expected: str) -> None:
    name = x509.Name([RelativeDistinguishedName(part) for part in parts])
    assert render_name(name.public_bytes()) == expected


def test_subject_of_a_certificate_ends_with_its_first_part() -> None:
    identity = CertificateAuthority().issue("alice", organization="Acme " + "x" * 50)
    assert subject_of(identity.der) == "CN=alice,O=Acme " + "x" * 50
