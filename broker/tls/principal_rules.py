"""Names of users from the subjects of their certificates: `ssl.principal.mapping.rules` (KIP-371). No IO.

Rules are separated by commas: `RULE:pattern/replacement/`, with a final L or U for lower or upper case, or `DEFAULT`,
which takes the whole subject. The first rule whose pattern matches the whole subject decides.
"""

import re
from typing import Final

from protocol.lazy_dataclass import lazy_dataclass

DEFAULT_RULES: Final = "DEFAULT"

_RULE: Final = r"(?:DEFAULT|RULE:(?:\\.|[^\\/])*/(?:\\.|[^\\/])*/[LU]?|)"
_SPLIT: Final = re.compile(rf"\s*(?P<rule>{_RULE})\s*(?:,\s*|$)", re.DOTALL)
_PARTS: Final = re.compile(
    r"RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)", re.DOTALL
)
_JAVA_GROUP: Final = re.compile(r"\(\?<(?P<name>[A-Za-z][A-Za-z0-9]*)>")
_JAVA_NAME: Final = re.compile(r"\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}")


class NoRuleApplies(Exception):
    """No rule names the user of a subject; the connection cannot be authenticated."""


@lazy_dataclass(frozen=True, slots=True)
class MappingRule:
    """A rule; without pattern it is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """Return the name of the user; None if the rule does not match the whole subject."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(lambda match: _expand(self.replacement, match), subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


@lazy_dataclass(frozen=True, slots=True)
class PrincipalRules:
    """The parsed rules of a listener."""

    rules: tuple[MappingRule, ...]

    def name_of(self, subject: str) -> str:
        """Return the name of the user with a subject. Raise NoRuleApplies."""
        for rule in self.rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoRuleApplies(f"no rule of ssl.principal.mapping.rules applies to {subject}")


def parse_principal_rules(text: str) -> PrincipalRules:
    """Parse rules. Raise ValueError with the end of a sentence about the setting."""
    rest, rules = text.strip(), []
    while rest:
        found = _SPLIT.match(rest)
        if found is None or not found.end():
            raise ValueError(f"has {rest!r}, which is neither RULE:pattern/replacement/[LU] nor DEFAULT")
        if found["rule"]:
            rules.append(_parse_rule(found["rule"]))
        rest = rest[found.end() :]
    return PrincipalRules(tuple(rules))


def _parse_rule(text: str) -> MappingRule:
    parts = _PARTS.fullmatch(text)
    if parts is None:
        return MappingRule()
    try:
        pattern = re.compile(_JAVA_GROUP.sub(r"(?P<\g<name>>", parts["pattern"]))
    except re.error as error:
        raise ValueError(f"has the pattern {parts['pattern']!r}, which is not a regular expression ({error})") from None
    _check_replacement(parts["replacement"], pattern)
    return MappingRule(pattern, parts["replacement"], parts["case"])


def _check_replacement(replacement: str, pattern: re.Pattern[str]) -> None:
    """Check names of groups here: at the first connection, the operator would look elsewhere."""
    for name in re.findall(r"(?<!\\)\$\{([^}]*)\}?", replacement):
        if name not in pattern.groupindex:
            raise ValueError(f"has the replacement {replacement!r}, whose group {name!r} is not in its pattern")


def _expand(replacement: str, match: re.Match[str]) -> str:
    r"""Return a replacement with `$1` and `${name}` replaced by groups, and `\x` by x.

    As in Kafka, the longest number of an existing group counts, and a number without group is plain text.
    """
    expanded, index = [], 0
    while index < len(replacement):
        char = replacement[index]
        index += 1
        if char == "\\" and index < len(replacement):
            expanded.append(replacement[index])
            index += 1
        elif char == "$" and (named := _JAVA_NAME.match(replacement, index)) is not None:
            expanded.append(match[named["name"]] or "")
            index = named.end()
        elif char == "$" and (digits := _group_digits(replacement, index, match.re.groups)):
            expanded.append(match[int(replacement[index : index + digits])] or "")
            index += digits
        else:
            expanded.append(char)
    return "".join(expanded)


def _group_digits(text: str, start: int, groups: int) -> int:
    """Return the number of digits at `start` that name an existing group; 0 for none."""
    digits = 0
    while text[start + digits : start + digits + 1].isdigit() and int(text[start : start + digits + 1]) <= groups:
        digits += 1
    return digits
