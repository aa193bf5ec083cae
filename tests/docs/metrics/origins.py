"""Kafka's MBean, the KIPs and the labels of each exported metric, from `origins.yml`. Texts come from the nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import yaml

_FILE: Final = Path(__file__).with_name("origins.yml")


class Origin(NamedTuple):
    """The labels of a metric, its MBean (empty for Ottla's own), and the KIPs that define it (empty if older)."""

    labels: tuple[str, ...]
    mbean: str
    kips: tuple[str, ...]


class Group(NamedTuple):
    """Attributes of one MBean with the same labels and KIPs."""

    prefix: str
    attributes: tuple[str, ...]
    mbean: str = ""
    labels: tuple[str, ...] = ()
    kips: tuple[str, ...] = ()


PIPELINE: Final = (
    Group(
        "ottla_metadata_job_",
        (
            "folded_end_offset",
            "high_watermark",
            "lag_records",
            "seconds_since_step",
            "seconds_since_high_watermark",
            "snapshots_written_total",
            "retries_total",
            "ready",
        ),
    ),
    Group("ottla_metadata_job_", ("last_error_info",), labels=("error",)),
)
"""The metrics of the job `spark_jobs.metadata_snapshots`."""


def sections() -> Mapping[str, Sequence[Group]]:
    """Return the groups of a node's metrics by section."""
    return {
        title: [
            Group(
                each["prefix"],
                tuple(each["attributes"].split()),
                each.get("mbean", ""),
                tuple(each.get("labels", ())),
                tuple(each["kip"].split(", ")) if "kip" in each else (),
            )
            for each in groups
        ]
        for title, groups in yaml.safe_load(_FILE.read_text()).items()
    }


def origins(groups: Iterable[Group], exported: Mapping[str, object]) -> Iterator[tuple[str, Origin]]:
    """Yield exported name and origin of each attribute. Raise KeyError for an attribute that is not exported."""
    for group in groups:
        for attribute in group.attributes:
            name, has_suffix, suffix = attribute.partition("/")
            if not has_suffix:
                suffix = name.lower().removesuffix("persec").replace("-", "_")
            stem = f"{group.prefix}{suffix}".rstrip("_")
            found = next((each for each in (stem, f"{stem}_total") if each in exported), None)
            if found is None:
                raise KeyError(f"{stem}: no node exports it")
            yield found, Origin(group.labels, _bean(group.mbean, name), group.kips)


def _bean(mbean: str, attribute: str) -> str:
    """Return the full name: an attribute in camel case is a part of the MBean's name."""
    if not mbean:
        return ""
    return f"{mbean},name={attribute}" if attribute[0].isupper() else f"{mbean}, {attribute}"
