"""Foreign remote metadata managers: import, context, and refusals with one sentence."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from storage.tiered.loading.remote_metadata import is_on_topic, load_remote_metadata
from storage.tiered.remote_metadata import RemoteLogMetadataManager, RemoteMetadataContext
from tests.support.fakes.memory_remote_metadata import MemoryRemoteMetadata

HERE = "tests.storage.tiered.loading.test_remote_metadata"
KEY = "remote.log.metadata.manager.class.name"


class ForeignMetadata(MemoryRemoteMetadata):
    """A foreign RemoteMetadataFactory."""

    def __init__(self, settings: Mapping[str, str], context: RemoteMetadataContext) -> None:
        super().__init__()
        self.settings, self.context = settings, context


def strict_factory(settings: Mapping[str, str], _context: RemoteMetadataContext) -> RemoteLogMetadataManager:
    if "url" not in settings:
        raise ValueError("rlmm.config.url must say where the database is.")
    raise ConnectionError("connection refused")


NOT_A_FACTORY = 1


def load(
    name: str, settings: Mapping[str, str] | None = None, class_path: str | None = None
) -> RemoteLogMetadataManager:
    context = RemoteMetadataContext(
        broker_id=1, cluster_id="c", log_directory="data", bootstrap_server=lambda: "127.0.0.1:9092"
    )
    return load_remote_metadata(name, settings or {}, context, class_path)


def test_kafka_class_name_selects_topic_based_manager() -> None:
    assert is_on_topic("org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager")
    assert is_on_topic("topic")
    assert not is_on_topic(f"{HERE}:ForeignMetadata")


def test_import_path_receives_settings_and_context() -> None:
    loaded = load(f"{HERE}.ForeignMetadata", {"url": "x"})
    assert isinstance(loaded, ForeignMetadata)
    assert loaded.settings == {"url": "x"}
    assert (loaded.context.broker_id, loaded.context.bootstrap_server()) == (1, "127.0.0.1:9092")


def test_class_path_is_searched_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "their_remote_metadata.py").write_text(f"from {HERE} import ForeignMetadata as Theirs\n")
    assert isinstance(load("their_remote_metadata:Theirs", class_path=f"/nowhere:{tmp_path}"), ForeignMetadata)


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("mysql", {}, f"^{KEY} must be topic or an import path such as module:Name, not 'mysql'.$"),
        (".own:ForeignMetadata", {}, f"^{KEY} must be topic or an import path"),
        ("no.such.Thing", {}, f"^{KEY} names no.such.Thing, which cannot be imported: No module named 'no'.$"),
        (f"{HERE}:Nothing", {}, "Nothing, which cannot be imported"),
        (f"{HERE}:NOT_A_FACTORY", {}, "NOT_A_FACTORY, which is not callable.$"),
        (f"{HERE}:strict_factory", {}, "^rlmm.config.url must say where the database is.$"),
        (
            f"{HERE}:strict_factory",
            {"url": "x"},
            r"strict_factory, which does not start: ConnectionError\('connection refused'\).$",
        ),
    ],
)
def test_invalid_implementation_is_refused_with_one_sentence(
    name: str, settings: Mapping[str, str], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        load(name, settings)
