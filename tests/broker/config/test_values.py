import pytest

from broker.config.values import ConfigType, parse_value, render_value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.INT, " 3 ", 3),
        (ConfigType.INT, "+10", 10),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.DOUBLE, "1E3", 1000.0),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, "a , b", ("a", "b")),
        (ConfigType.LIST, "a,b,a", ("a", "b")),
        (ConfigType.STRING, " x ", "x"),
    ],
)
def test_values_are_parsed_as_by_kafka(kind: ConfigType, text: str, value: object) -> None:
    assert parse_value(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, ""),
        (ConfigType.INT, "2147483648"),
        (ConfigType.SHORT, "40000"),
        (ConfigType.INT, "1.5"),
        (ConfigType.INT, ""),
        (ConfigType.LONG, "1_0"),
        (ConfigType.LONG, "9" * 30_000),
        (ConfigType.INT, "٣"),
        (ConfigType.DOUBLE, "nan"),
        (ConfigType.DOUBLE, "1_0"),
        (ConfigType.LIST, "a,,b"),
    ],
)
def test_values_that_kafka_refuses_are_refused(kind: ConfigType, text: str) -> None:
    with pytest.raises(ValueError):
        parse_value(kind, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (7, "7"),
        (("a", "b"), "a,b"),
        ((), ""),
        (None, None),
        (0.5, "0.5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_values_are_rendered_as_by_java(value: object, text: str | None) -> None:
    assert render_value(value) == text  # type: ignore[arg-type]  # the table's column is of several types
