"""`ottla remote`: describes, verifies, cleans up and recovers remote storage."""

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import click

from broker.cli.shared.cluster_view import fill_configs, topics_of_metadata
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import client_options, json_option, key_value
from broker.cli.shared.output import print_json
from broker.cli.shared.progress import with_progress
from broker.cli.shared.session import session
from broker.cli.tiering.audit_report import AuditSummary, document, verdict_document, verdict_line
from broker.cli.tiering.bucket import RemoteBucket, create_bucket, open_bucket, require_topic_based_metadata
from broker.cli.tiering.bucket_audit import BucketAudit
from broker.cli.tiering.cluster import Cluster
from broker.cli.tiering.give_up import GivenUpOffsets, LostSegment, give_up, lost_segments, mark
from broker.cli.tiering.give_up_range import OffsetBounds, RangeReplicas, lost_in_range
from broker.cli.tiering.metadata_topic import RemoteMetadataTopic, require_metadata_topic
from broker.cli.tiering.recovery_planner import RecoveryPlanner
from broker.cli.tiering.remote_partitions import RemotePartitionRow, print_rows, row_of_bucket, rows_of_cluster
from broker.cli.tiering.topic_recovery import TopicRecovery, plan_document, plan_lines
from broker.client import Client
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid, uuid_from_text
from storage.tiered.bucket.audit import PartitionReport
from storage.tiered.bucket.listing import StoredPartition, walk
from storage.tiered.bucket.reconcile import COPY_LEASE_MS, DEFAULT_GRACE_MS, AuditedSegment
from storage.tiered.bucket.recovery_plan import REMOTE_STORAGE, RecoveryOptions, TopicPlan
from storage.tiered.segment_metadata import TOOL_BROKER_ID

VERIFY_TIMEOUT_S = 60
"""Time for brokers to create logs and elect leaders after a recovery."""


@lazy_dataclass(frozen=True, slots=True)
class RemoteTarget:
    """The cluster, bucket and topic of a command."""

    bootstrap_server: str
    command_config: str | None
    config: str | None
    overrides: tuple[str, ...]
    topic: str | None

    @contextmanager
    def cluster(self) -> Iterator[tuple[Client, Cluster, RemoteMetadataTopic]]:
        require_topic_based_metadata(self.config, self.overrides)
        with session(self.bootstrap_server, self.command_config) as client:
            yield client, Cluster(client), RemoteMetadataTopic(client, now_ms)

    @contextmanager
    def bucket(self) -> Iterator[RemoteBucket]:
        with open_bucket(self.config, self.overrides) as bucket:
            yield bucket


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def remote_target_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of RemoteTarget; the command receives them as `target`."""

    @functools.wraps(command)
    def run(
        bootstrap_server: str,
        command_config: str | None,
        config: str | None,
        overrides: tuple[str, ...],
        topic: str | None,
        **rest: object,
    ) -> None:
        command(target=RemoteTarget(bootstrap_server, command_config, config, overrides, topic), **rest)

    options = (
        click.option("--topic", metavar="TOPIC", help="Only this topic."),
        click.option(
            "--override",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting that overrides file and environment.",
        ),
        click.option(
            "--config",
            metavar="FILE",
            type=click.Path(),
            help="A broker's server.properties, with remote.log.storage.manager.class.name and rsm.config.* of the"
            " bucket.",
        ),
        client_options,
    )
    return functools.reduce(lambda done, option: option(done), options, run)


grace_option = click.option(
    "--grace-ms",
    type=click.IntRange(min=0),
    default=DEFAULT_GRACE_MS,
    show_default=True,
    help=f"Minimum age of objects to remove, in ms; a copy may take {COPY_LEASE_MS} ms.",
)


@click.group("remote", short_help="Describe, verify, clean up or recover remote storage.")
def remote() -> None:
    """Describe, verify or clean up remote storage, or recover topics from it."""


# -- create-bucket -----------------------------------------------------------------------------------------------------


@remote.command("create-bucket")
@click.option(
    "--config", metavar="FILE", help="A node's server.properties, overridden by KAFKA_* environment variables."
)
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting that overrides file and environment."
)
@click.option(
    "--patience",
    "timeout_s",
    type=float,
    default=60,
    show_default=True,
    help="Seconds to wait for an unavailable store.",
)
def create(config: str | None, overrides: tuple[str, ...], timeout_s: float) -> None:
    """Create the bucket of nodes with these settings, unless it exists."""
    with open_bucket(config, overrides) as bucket:
        print("The bucket was created." if create_bucket(bucket.store, timeout_s) else "The bucket exists already.")


# -- describe ----------------------------------------------------------------------------------------------------------


@remote.command("describe")
@remote_target_options
@click.option("--from-bucket", is_flag=True, help="Read the bucket only; do not connect to a cluster.")
@json_option
def describe(target: RemoteTarget, from_bucket: bool, as_json: bool) -> None:
    """Show offsets, sizes and ages, per topic and partition."""
    rows = _rows_of_bucket(target) if from_bucket else _rows_of_cluster(target)
    if as_json:
        print_json([row.document() for row in rows])
    else:
        print_rows(rows, now_ms())


def _rows_of_bucket(target: RemoteTarget) -> list[RemotePartitionRow]:
    with target.bucket() as bucket:
        found = walk(bucket.store, bucket.keys, target.topic)
        return [row_of_bucket(bucket.reader.inventory(each)) for each in found if isinstance(each, StoredPartition)]


def _rows_of_cluster(target: RemoteTarget) -> list[RemotePartitionRow]:
    with target.cluster() as (client, cluster, metadata):
        known = list(metadata.catch_up_all()) if metadata.exists() else []
        return rows_of_cluster(cluster, known, target.topic, _tiered_topics(client))


def _tiered_topics(client: Client) -> list[str]:
    from storage.local_log import NEVER_TIERED  # imported late: other commands do not need the logs

    topics = topics_of_metadata(client, None)
    fill_configs(client, topics)
    return [
        topic.name
        for topic in topics
        if topic.configs.get(REMOTE_STORAGE) == "true" and topic.name not in NEVER_TIERED  # the default may be true
    ]


# -- verify ------------------------------------------------------------------------------------------------------------


@remote.command("verify")
@remote_target_options
@grace_option
@click.option("--deep", is_flag=True, help="Read every live segment: sizes, checksums, offsets, indexes.")
@json_option
def verify(target: RemoteTarget, grace_ms: int, deep: bool, as_json: bool) -> None:
    """Compare the bucket with the remote metadata and print the differences; exit with 1 if there are any."""
    summary = AuditSummary()
    documents: list[dict[str, object]] = []
    damage: list[str] = []
    with target.bucket() as bucket, target.cluster() as (_, cluster, metadata):
        require_metadata_topic(metadata)
        audit = BucketAudit(bucket, cluster, metadata, now_ms=now_ms, grace_ms=grace_ms)
        for report in with_progress(audit.reports(target.topic), "partitions"):
            found = audit.deep_faults(report) if deep else []
            damage += found
            lines = summary.add(report)
            if as_json:
                documents.append(document(report))
            else:
                _print([*lines, *found])
        unrecognized = [f"unrecognized object: {info.key} ({info.size} bytes)" for info in audit.unrecognized]
        uploads = [f"unfinished upload: {upload.key}" for upload in audit.uploads(target.topic)]
    if as_json:
        print_json(
            {"partitions": documents, "damaged": damage, "unrecognized": unrecognized, "unfinishedUploads": uploads}
        )
    else:
        _print([*unrecognized, *uploads, summary.line()])
    if count := summary.finding_count + len(damage) + len(unrecognized) + len(uploads):
        raise CommandFailed(f"{count} finding(s): bucket and metadata differ.")


def _print(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        click.echo(sentence)


# -- collect -----------------------------------------------------------------------------------------------------------


@remote.command("collect")
@remote_target_options
@grace_option
@click.option(
    "--gone-topic",
    "gone_topics",
    multiple=True,
    metavar="ID",
    help="Id of a topic that is deleted for good: remove all of its objects.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@json_option
def collect(target: RemoteTarget, grace_ms: int, gone_topics: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Remove leftovers: objects without metadata, abandoned copies, half-deleted segments and unfinished multipart
    uploads."""
    gone = [_topic_id(text, "--gone-topic") for text in gone_topics]
    removed: list[dict[str, object]] = []

    def report_removal(report: PartitionReport, verdict: AuditedSegment) -> None:
        removed.append(
            {"topic": report.partition.topic, "partition": report.partition.partition} | verdict_document(verdict)
        )
        if not as_json:
            click.echo(verdict_line(report, verdict))

    with target.bucket() as bucket, target.cluster() as (_, cluster, metadata):
        require_metadata_topic(metadata)
        if existing := [cluster.topics.names[each] for each in gone if each in cluster.topics.names]:
            raise CommandFailed(f"--gone-topic: topics {', '.join(existing)} exist in the cluster.")
        audit = BucketAudit(bucket, cluster, metadata, now_ms=now_ms, grace_ms=grace_ms, gone=gone)
        objects = _collect(audit, target.topic, report_removal, dry_run=dry_run)
        uploads = _collect_uploads(audit, target.topic, dry_run=dry_run)
    if as_json:
        print_json({"dryRun": dry_run, "removed": removed, "otherObjects": objects, "unfinishedUploads": uploads})
    else:
        would = "would be " if dry_run else ""
        if uploads:
            click.echo(f"{len(uploads)} unfinished uploads {would}aborted")
        click.echo(f"{len(removed)} segments and {len(objects)} other objects {would}removed")


def _collect(
    audit: BucketAudit,
    topic: str | None,
    report_removal: Callable[[PartitionReport, AuditedSegment], None],
    *,
    dry_run: bool,
) -> list[str]:
    """Remove leftovers; return the keys of the removed objects that are not part of segments."""
    objects: list[str] = []
    for report in with_progress(audit.reports(topic), "partitions"):
        objects += audit.stale_log_starts(report)
        if not dry_run:
            audit.collect(report, functools.partial(report_removal, report))
            continue
        for verdict in audit.removable(report):
            report_removal(report, verdict)
    objects += audit.stale_topic_objects()
    if not dry_run:
        audit.remove(objects)
    return objects


def _collect_uploads(audit: BucketAudit, topic: str | None, *, dry_run: bool) -> list[str]:
    """Abort unfinished uploads; return the keys of their objects."""
    uploads = list(audit.uploads(topic))
    if not dry_run:
        for upload in uploads:
            audit.abort(upload)
    return [upload.key for upload in uploads]


def _topic_id(text: str, option: str) -> Uuid:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise click.UsageError(f"{option} {text} is not a topic id of 22 base64 characters.") from error


# -- give-up -----------------------------------------------------------------------------------------------------------


@remote.command("give-up")
@remote_target_options
@click.option("--partition", type=click.IntRange(min=0), required=True, help="Partition of --topic.")
@click.option(
    "--segment",
    "segment_ids",
    multiple=True,
    metavar="ID",
    help="A lost or damaged segment, which is read to check it; without, all segments with missing objects.",
)
@click.option("--from-offset", type=click.IntRange(min=0), help="First lost offset; with --to-offset.")
@click.option("--to-offset", type=click.IntRange(min=0), help="Last lost offset, included.")
@click.option("--force", is_flag=True, help="Give up the offsets although records of them can be read.")
@click.option("--yes", is_flag=True, help="Give the records up; without, they are listed.")
@json_option
def give_up_segments(
    target: RemoteTarget,
    partition: int,
    segment_ids: tuple[str, ...],
    from_offset: int | None,
    to_offset: int | None,
    force: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Give up lost segments or offsets of a partition, so that consumers skip them. Cannot be undone."""
    if target.topic is None:
        raise click.UsageError("--topic is required.")
    wanted = frozenset(_segment_id(text) for text in segment_ids)
    bounds = _offset_bounds(from_offset, to_offset)
    if wanted and bounds:
        raise click.UsageError("--segment cannot be combined with --from-offset and --to-offset.")
    if force and not bounds:
        raise click.UsageError("--force requires --from-offset and --to-offset.")
    offsets: list[GivenUpOffsets] = []
    lost: list[LostSegment] = []
    with target.bucket() as bucket, target.cluster() as (client, cluster, metadata):
        require_metadata_topic(metadata)
        audit = BucketAudit(bucket, cluster, metadata, now_ms=now_ms, grace_ms=DEFAULT_GRACE_MS)
        found = [each for each in audit.reports(target.topic) if each.exists]
        reports = [each for each in found if each.partition.partition == partition]
        if not reports:
            raise CommandFailed(f"{target.topic}-{partition}: the cluster has no remote segments of this partition.")
        for report in reports:
            if bounds is None:
                lost += lost_segments(bucket, report, wanted)
                continue
            replicas = RangeReplicas(client, report.partition)
            offsets.append(replicas.offsets(bounds))
            lost += lost_in_range(bucket, report, replicas, bounds, is_forced=force)
        if yes:
            for each in offsets:
                mark(metadata, each, now_ms())
            lost = give_up(metadata, lost, now_ms)
    _print_given_up(lost, bounds, yes=yes, as_json=as_json)


def _print_given_up(lost: Sequence[LostSegment], bounds: OffsetBounds | None, *, yes: bool, as_json: bool) -> None:
    if as_json:
        named = {} if bounds is None else {"fromOffset": bounds.first, "toOffset": bounds.last}
        print_json({"givenUp": yes, "segments": [each.document() for each in lost], **named})
        return
    _print([each.line() for each in lost])
    done = "given up" if yes else "lost; repeat the command with --yes to give them up"
    if bounds is not None:
        click.echo(f"offsets {bounds.first}-{bounds.last} {done}")
    click.echo(f"{len(lost)} segments {done}" if lost else "0 segments lost")


def _offset_bounds(first: int | None, last: int | None) -> OffsetBounds | None:
    if first is None and last is None:
        return None
    if first is None or last is None or first > last:
        raise click.UsageError(
            "--from-offset and --to-offset require each other, and the first must not be the greater."
        )
    return OffsetBounds(first, last)


def _segment_id(text: str) -> Uuid:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise click.UsageError(f"--segment {text} is not a segment id of 22 base64 characters.") from error


# -- recover -----------------------------------------------------------------------------------------------------------


@remote.command("recover")
@remote_target_options
@click.option("--topic-id", metavar="ID", help="Topic id, if the bucket has several topics of the name.")
@click.option("--metadata-only", is_flag=True, help="Recover the metadata of existing topics only.")
@click.option("--all-topics", is_flag=True, help="Also restore every topic that does not exist.")
@click.option(
    "--from-cluster",
    "from_clusters",
    multiple=True,
    metavar="CLUSTER_ID",
    help="Id of a lost cluster, whose topics are taken over.",
)
@click.option("--above-holes", is_flag=True, help="Where segments are lost, give up all offsets below them.")
@click.option("--replication-factor", type=click.IntRange(1, 32767), help="Replicas of restored topics.")
@click.option(
    "--topic-config", "configs", multiple=True, metavar="NAME=VALUE", help="A config that overrides the bucket's."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@json_option
def recover(
    target: RemoteTarget,
    topic_id: str | None,
    metadata_only: bool,
    all_topics: bool,
    from_clusters: tuple[str, ...],
    above_holes: bool,
    replication_factor: int | None,
    configs: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Recover from the bucket: lost metadata (--metadata-only), a topic (--topic), or every topic of a cluster
    (--all-topics).

    Recover before producers use the new cluster. The command may be repeated after an interruption.
    """
    if sum((metadata_only, all_topics, target.topic is not None and not metadata_only)) != 1:
        raise click.UsageError("Exactly one of --metadata-only, --topic TOPIC and --all-topics is required.")
    wanted_id = None if topic_id is None else _topic_id(topic_id, "--topic-id")
    with target.bucket() as bucket, target.cluster() as (client, cluster, metadata):
        options = RecoveryOptions(
            now_ms=now_ms(),
            cluster_id=cluster.cluster_id,
            broker_id=TOOL_BROKER_ID,
            above_holes=above_holes,
            from_clusters=frozenset(from_clusters),
            replication_factor=replication_factor,
            configs=dict(key_value(text, "--topic-config") for text in configs),
        )
        planner = RecoveryPlanner(bucket, cluster, metadata, options)
        echo = functools.partial(click.echo, err=as_json)
        recovery = TopicRecovery(
            client, cluster, metadata, bucket, options, on_progress=echo, timeout_s=VERIFY_TIMEOUT_S
        )
        found = planner.plans(target.topic, wanted_id, restore=not metadata_only)
        plans = _execute(with_progress(found, "topics"), recovery, echo, dry_run=dry_run)
    if as_json:
        print_json({"dryRun": dry_run, "topics": [plan_document(plan) for plan in plans]})
    if refused := [plan.topic for plan in plans if plan.refusals]:
        raise CommandFailed(f"not recovered: {', '.join(sorted(set(refused)))}.")
    if target.topic is not None and not plans:
        raise CommandFailed(f"the bucket has no recoverable data of topic {target.topic!r}.")


def _execute(
    plans: Iterable[TopicPlan], recovery: TopicRecovery, echo: Callable[[str], None], *, dry_run: bool
) -> list[TopicPlan]:
    """Execute each plan without refusals before the next plan is made; return all plans."""
    done = []
    for plan in plans:
        done.append(plan)
        for line in plan_lines(plan):
            echo(line)
        if not dry_run and not plan.refusals:
            recovery.execute(plan)
    return done
