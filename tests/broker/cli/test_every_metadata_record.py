"""Tools that print metadata records or the metadata image show every record type."""

import pytest

from broker.cli.dump.decoders import cluster_metadata_decoder
from broker.cli.shell.commands import Shell
from broker.cli.shell.nodes import image_node
from broker.metadata.image.metadata_image import MetadataImage, Provenance
from broker.metadata.image.records import encode_record
from protocol.ids import LeaderEpoch
from protocol.records.builder import build_value_batch
from protocol.records.reader import iter_records
from protocol.schema import snake_case
from tests.broker.metadata.record_samples import IMAGE_SAMPLES, SAMPLES, Sample, sample_name


@pytest.mark.parametrize("sample", SAMPLES, ids=sample_name)
def test_dump_log_decodes_every_record(sample: Sample) -> None:
    frame = encode_record(sample.record, sample.record.MAX_VERSION)
    (record,) = iter_records(build_value_batch([frame], 5, base_offset=0, leader_epoch=LeaderEpoch(1)))
    payload = cluster_metadata_decoder()(record).payload
    assert isinstance(payload, dict)
    assert payload["type"] == snake_case(sample.name).upper()
    assert payload["version"] == sample.record.MAX_VERSION


@pytest.mark.parametrize("sample", IMAGE_SAMPLES, ids=sample_name)
def test_metadata_shell_shows_what_every_record_changes(sample: Sample) -> None:
    assert tree(sample.image) != tree(sample.image_before)


def tree(image: MetadataImage) -> list[str]:
    """Return the lines of `tree /` without the provenance."""
    node = image_node(image._replace(provenance=Provenance()))
    return list(Shell(lambda: node).run(["tree", "/"]))
