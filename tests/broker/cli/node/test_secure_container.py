"""Commands that run once for secure nodes in containers."""

from pathlib import Path

from click.testing import CliRunner

from broker.cli.node.secure_container import secure_container
from broker.config.load import read_properties
from broker.tls.authority import IssuedCertificate


def make(directory: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(secure_container, ["make", "--directory", str(directory), *arguments])
    return result.exit_code, result.output


def test_make_writes_certificates_for_host_names_and_settings_of_clients(tmp_path: Path) -> None:
    nodes = [
        part
        for number in (1, 2)
        for part in (f"--host=n{number}", f"--client=127.0.0.1:{number}", f"--internal=n{number}:5")
    ]
    assert make(tmp_path / "secrets", *nodes) == (0, "")
    before = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert make(tmp_path / "secrets", *nodes) == (0, "")
    assert before == {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    certificate = IssuedCertificate.from_pem(before["node-2.pem"])
    assert (certificate.name, set(certificate.hosts)) == ("node-2", {"n2", "localhost", "127.0.0.1"})
    clients = read_properties(str(tmp_path / "secrets" / "client.properties"))
    assert clients["bootstrap.servers"] == "127.0.0.1:1,127.0.0.1:2"
    assert read_properties(str(tmp_path / "secrets" / "node-client.properties"))["bootstrap.servers"] == "n1:5,n2:5"


def test_make_needs_all_addresses_of_each_node(tmp_path: Path) -> None:
    code, output = make(tmp_path, "--host=a", "--host=b", "--client=c:1", "--internal=a:1")
    assert code == 1
    assert "once for each node" in output


def test_register_without_secrets_fails_with_a_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(secure_container, ["register", "--directory", str(tmp_path)])
    assert result.exit_code == 1
    assert "the super user has no password yet" in result.output
