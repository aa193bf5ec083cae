"""docs/kubernetes/ottla.yaml: valid for Kubernetes, consistent in itself, and a configuration that each pod accepts."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.cli.node.container import prepare
from broker.config.load import load_config

FILE = Path(__file__).resolve().parents[2] / "docs" / "kubernetes" / "ottla.yaml"
KUBERNETES = "1.37"
"""Version of the schemas."""
NAMESPACE = "streaming"


@pytest.fixture(scope="module")
def objects() -> Mapping[str, Any]:
    """Return the objects by kind and name."""
    documents = [each for each in yaml.safe_load_all(FILE.read_text()) if each is not None]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in documents}


@pytest.fixture(scope="module")
def pod(objects: Mapping[str, Any]) -> Mapping[str, Any]:
    template = objects["StatefulSet/ottla"]["spec"]["template"]
    assert isinstance(template, dict)
    return template


def _environment(objects: Mapping[str, Any], pod: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the variables of a pod's container, as Kubernetes expands them."""
    found: dict[str, str] = {"HOSTNAME": name, **objects["ConfigMap/ottla"]["data"]}
    fields = {"metadata.name": name, "metadata.namespace": NAMESPACE}
    for variable in pod["spec"]["containers"][0]["env"]:
        if "valueFrom" in variable:
            found[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            expanded = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], variable["value"])
            found[variable["name"]] = expanded
    return found


def test_objects_satisfy_kubernetes_schemas(objects: Mapping[str, Any]) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="Kubernetes' schemas: run `make kubernetes`")
    for each in objects.values():
        validator.validate(each, KUBERNETES, strict=True)


def test_misspelt_field_fails_the_schemas(objects: Mapping[str, Any]) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="Kubernetes' schemas: run `make kubernetes`")
    budget = objects["PodDisruptionBudget/ottla"]
    misspelt = {**budget, "spec": {**budget["spec"], "maxUnavailible": 1}}
    with pytest.raises(validator.ValidationError):
        validator.validate(misspelt, KUBERNETES, strict=True)


@pytest.mark.parametrize("ordinal", range(3))
def test_pod_loads_its_variables_as_config(
    ordinal: int, objects: Mapping[str, Any], pod: Mapping[str, Any], tmp_path: Path
) -> None:
    environment = _environment(objects, pod, f"ottla-{ordinal}")
    config, warnings = load_config(None, (), prepare(environment, tmp_path / "absent").environment)
    assert warnings == []
    assert config.node_id == ordinal
    assert [voter.id for voter in config.voters] == [0, 1, 2]
    mount = next(each for each in pod["spec"]["containers"][0]["volumeMounts"] if each["name"] == "data")
    assert config.log_dirs == (mount["mountPath"],)
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://ottla-{ordinal}.ottla-nodes.{NAMESPACE}.svc:9092"


def test_voters_are_the_pods_of_the_stateful_set(objects: Mapping[str, Any]) -> None:
    stateful_set = objects["StatefulSet/ottla"]
    service = stateful_set["spec"]["serviceName"]
    pods = [f"{ordinal}@ottla-{ordinal}.{service}:9093" for ordinal in range(stateful_set["spec"]["replicas"])]
    assert objects["ConfigMap/ottla"]["data"]["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",") == pods
    assert objects[f"Service/{service}"]["spec"]["clusterIP"] == "None"
    assert objects[f"Service/{service}"]["spec"]["publishNotReadyAddresses"] is True


def test_selectors_match_the_pods(objects: Mapping[str, Any], pod: Mapping[str, Any]) -> None:
    labels = pod["metadata"]["labels"]
    for name in ("Service/ottla", "Service/ottla-nodes"):
        assert objects[name]["spec"]["selector"] == labels
    for name in ("PodDisruptionBudget/ottla", "StatefulSet/ottla"):
        assert objects[name]["spec"]["selector"]["matchLabels"] == labels
    (term,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == labels


def test_probes_and_services_use_ports_of_the_container(objects: Mapping[str, Any], pod: Mapping[str, Any]) -> None:
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"clients": 9092, "controller": 9093, "http": 9644}
    paths = {kind: container[kind]["httpGet"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {at["path"] for at in paths.values()} == {"/health/live", "/health/ready"}
    assert paths["readinessProbe"]["path"] == "/health/ready"
    assert {at["port"] for at in paths.values()} == {"http"}
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(ports["http"])
    for name in ("Service/ottla", "Service/ottla-nodes"):
        assert all(port["port"] == ports[port["targetPort"]] for port in objects[name]["spec"]["ports"])


def test_pod_has_time_for_a_controlled_shutdown_and_few_privileges(pod: Mapping[str, Any]) -> None:
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["terminationGracePeriodSeconds"] >= 60
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
