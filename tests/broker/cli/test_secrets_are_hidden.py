"""Known secrets, and a scan of everything that shows configuration or metadata for them."""

import logging
from pathlib import Path

import pytest

from broker.cli.dump.decoders import cluster_metadata_decoder, shown_text
from broker.cli.node.scram_credential import scram_record
from broker.cli.shell.commands import Shell
from broker.cli.shell.nodes import image_node
from broker.config.definitions import BROKER_KEYS
from broker.config.describe import describe_broker
from broker.config.errors import ConfigError
from broker.config.load import load_config
from broker.logs import JsonFormatter, TextFormatter
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE
from broker.metadata.image.records import encode_record
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import ConfigRecord, UserScramCredentialRecord
from protocol.records.builder import build_value_batch
from protocol.records.reader import iter_records

SECRET = "hunter2-hunter2"
PASSWORDS = sorted(name for name, key in BROKER_KEYS.items() if key.sensitive)
RECORDS: list[ConfigRecord] = [
    *(ConfigRecord(ResourceType.BROKER, "1", name, SECRET) for name in PASSWORDS),
    ConfigRecord(ResourceType.BROKER, "", "listener.name.client.ssl.key.password", SECRET),
    ConfigRecord(ResourceType.TOPIC, "t", "retention.ms", "12345"),
]


def credential() -> UserScramCredentialRecord:
    record = scram_record(f"SCRAM-SHA-512=[name=admin,password={SECRET}]").message
    assert isinstance(record, UserScramCredentialRecord)
    return record


def test_dump_of_the_metadata_log_shows_no_secret() -> None:
    scram = credential()
    frames = [encode_record(record, record.MAX_VERSION) for record in RECORDS]
    frames.append(encode_record(scram, scram.MAX_VERSION))
    batch = build_value_batch(frames, 5, base_offset=0, leader_epoch=LeaderEpoch(1))
    decode = cluster_metadata_decoder()
    text = "\n".join(shown_text(decode(record).payload) for record in iter_records(batch))
    assert SECRET not in text
    assert '"12345"' in text
    assert text.count("[redacted]") == len(PASSWORDS) + 1 + 3


def test_metadata_shell_shows_no_secret() -> None:
    scram = credential()
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(RECORDS)
    delta.replay(scram)
    image = delta.apply(EMPTY_IMAGE.provenance)
    text = "\n".join(Shell(lambda: image_node(image)).run(["tree", "/"]))
    assert SECRET not in text
    assert scram.stored_key.hex() not in text
    assert scram.server_key.hex() not in text
    assert "12345" in text


@pytest.mark.parametrize("name", PASSWORDS)
def test_descriptions_and_representations_show_no_secret(name: str) -> None:
    config, _ = load_config(None, [f"{name}={SECRET}"], {})
    described = describe_broker(config)
    (entry,) = [each for each in described if each.name == name]
    assert entry.sensitive
    assert entry.value is None
    assert SECRET not in repr(described) + repr(config)


def test_log_of_an_unusable_configuration_shows_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"ssl.keystore.password={SECRET}\nssl.key.password={SECRET}\nnum.partitions=none\n")
    with pytest.raises(ConfigError) as raised:
        load_config(str(path), [], {})
    failure = (type(raised.value), raised.value, raised.tb)
    record = logging.LogRecord("x", logging.ERROR, "x", 1, "failed", (), failure)
    assert SECRET not in TextFormatter().format(record) + JsonFormatter().format(record)
