"""JAAS entries as Kafka's `sasl.jaas.config` writes them."""

import pytest

from broker.sasl.jaas import parse_jaas

SECRET = "sesame-4"


def test_entry_has_a_module_and_options() -> None:
    module = parse_jaas(
        "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
        f""" username="alice" password='{SECRET}' // comment
        /* more */ tokenauth=true;"""
    )
    assert module.name == "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert module.options == {"username": "alice", "password": SECRET, "tokenauth": "true"}
    assert SECRET not in repr(module)


def test_quoted_values_hold_signs_and_escapes() -> None:
    module = parse_jaas(r"""M required password="a;b=c\"d\\e f" empty="";""")
    assert module.options == {"password": 'a;b=c"d\\e f', "empty": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "M",
        "M username=a;",
        f'M required password="{SECRET}"',
        f'M required password="{SECRET};',
        f"M required {SECRET};",
        f"M required password={SECRET}=;",
        f"M required password={SECRET}; N required;",
        f"= required password={SECRET};",
        f'M required password="{SECRET}\n";',
    ],
)
def test_malformed_entry_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"[a-z]") as caught:
        parse_jaas(text)
    assert SECRET not in str(caught.value)
