import pytest

from broker.config.environment import IGNORED, setting_name, settings_from_environment


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_ADVERTISED_LISTENERS", "advertised.listeners"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_METADATA_SNAPSHOT_MIN_CHANGED__RECORDS_RATIO", "metadata.snapshot.min.changed_records.ratio"),
        ("KAFKA_OTTLA_HTTP_LISTENER", "ottla.http.listener"),
    ],
)
def test_variables_are_mapped_as_in_the_apache_image(variable: str, name: str) -> None:
    assert setting_name(variable) == name


def test_unrelated_and_jvm_variables_are_ignored() -> None:
    environ = {"PATH": "/bin", "CLUSTER_ID": "x", "KAFKA_NODE_ID": "4"} | dict.fromkeys(IGNORED, "-Xmx1G")
    assert settings_from_environment(environ) == {"node.id": "4"}
