"""`ssl.principal.mapping.rules` (KIP-371): parsing, and the names that rules give."""

import pytest

from broker.tls.principal_rules import NoRuleApplies, parse_principal_rules

SUBJECT = "CN=kafka1.example.com,OU=Ops,O=Acme,C=DE"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", SUBJECT),
        ("", None),
        ("RULE:^CN=(.*?),.*$/$1/", "kafka1.example.com"),
        ("RULE:^CN=(.*?),.*$/$1/U", "KAFKA1.EXAMPLE.COM"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L", "kafka1.example.com@ops"),
        (r"RULE:^CN=([^.]+)\.(.*?),.*$/$1/", "kafka1"),
        ("RULE:^UID=(.*)$/$1/ , RULE:^CN=(.*?),OU=Ops.*$/ops-$1/L, DEFAULT", "ops-kafka1.example.com"),
        ("RULE:^UID=(.*)$/$1/,DEFAULT", SUBJECT),
        ("RULE:^UID=(.*)$/$1/", None),
        ("RULE:CN=kafka1/admin/", None),
        ("RULE:.*/admin/", "adminadmin"),
        ("RULE:^.*$/admin/", "admin"),
        ("RULE:^CN=(.*?),.*$/$1@$4/", "kafka1.example.com@$4"),
        ("RULE:^CN=(.*?),.*$/$12/", "kafka1.example.com2"),
        ("RULE:^CN=(.*?),.*$/$0/L", SUBJECT.lower()),
        ("RULE:^CN=(?<host>.*?),.*$/${host}/", "kafka1.example.com"),
        (r"RULE:^CN=(.*?),.*$/\$1/", "$1"),
        (r"RULE:^CN=(.*?),.*$/a\/$1/", "a/kafka1.example.com"),
    ],
)
def test_first_rule_that_matches_the_whole_subject_decides(rules: str, name: str | None) -> None:
    parsed = parse_principal_rules(rules)
    if name is None:
        with pytest.raises(NoRuleApplies, match=r"no rule of ssl.principal.mapping.rules applies to CN=kafka1"):
            parsed.name_of(SUBJECT)
    else:
        assert parsed.name_of(SUBJECT) == name


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("default", "neither RULE"),
        ("RULE:^CN=(.*?)$", "neither RULE"),
        ("RULE:a/b", "neither RULE"),
        ("RULE:a/b/X", "neither RULE"),
        ("RULE:a/b/L/more", "neither RULE"),
        ("DEFAULT RULE:a/b/", "neither RULE"),
        ("RULE:^CN=(/$1/", "not a regular expression"),
        ("RULE:^CN=(.*)$/${user}/", "group 'user' is not in its pattern"),
    ],
)
def test_unusable_rules_are_refused(rules: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_principal_rules(rules)
