"""Scenarios of remote log segments: copying, local deletion, expiration and collection across leader changes.

Each line of output starts with the time in milliseconds since the start of the block.

The only partition is t-0. An upload takes 500 ms, any other store operation 10 ms. Tasks run every second; unreferenced
segments are collected after a minute. A segment has ten records.

    broker 1 [upload=500]           start a broker, first with an empty disk; upload: duration of an upload
    lead 1 epoch=0                  follow 2 epoch=0
    fill 1 3 [records=5]            the leader closes three segments, and commits them
    append 1 5                      append to the active segment, uncommitted
    commit 1 45                     advance the high watermark (`end`: to the log end offset)
    replicate 1 2 [roll=yes]        let the follower fetch all; roll: its active segment
    config KEY VALUE                set a topic config
    trim 1 15                       DeleteRecords up to an offset
    retain 1                        run local retention
    store down|up                   store fail copy|delete [lost]   (the next call; lost: after it took effect)
    metadata hold|release           delay the events of all brokers; release: apply them in the order of the log
    advance 5                       let seconds pass; `quiet` after any command suppresses its output
    crash 1                         stop 1
    delete-topic                    delete the topic on every broker
    status 1                        show the broker's log
    bucket                          show segments in metadata and store
"""

import asyncio
from collections.abc import Awaitable, Mapping

from protocol.ids import LeaderEpoch
from protocol.records.builder import Record, build_batch
from storage.log import Log
from storage.tiered.errors import RemoteStorageError, RetriableRemoteStorageError
from storage.tiered.segment_metadata import PartitionDelete, RemoteSegment, SegmentUpdate
from tests.scenarios.transcript import Command, Named, Scenario, Words
from tests.support.fakes.fast_forward_loop import FastForwardLoop
from tests.support.fakes.shared_remote_storage import Fault, Operation
from tests.support.harnesses.remote_log_harness import TOPIC_ID, Broker, Bucket, replicate


class RemoteLogScenario(Scenario):
    """Interpreter of the commands above."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=FastForwardLoop)
        self.begun_s = 0.0
        self.bucket = Bucket()
        self.brokers: dict[int, Broker] = {}
        self.is_down = False
        self.faults: list[tuple[str, bool]] = []
        self.names: dict[bytes, str] = {}
        self.bucket.storage.fault = self._on_call
        self._report_events()
        self.commands: Mapping[str, Command] = {
            "broker": self.broker,
            "lead": self.lead,
            "follow": self.follow,
            "fill": self.fill,
            "append": self.append,
            "commit": self.commit,
            "replicate": self.replicate,
            "config": self.config,
            "trim": self.trim,
            "retain": self.retain,
            "store": self.store,
            "metadata": self.metadata,
            "advance": self.advance,
            "crash": self.crash,
            "stop": self.stop,
            "delete-topic": self.delete_topic,
            "status": self.status,
            "bucket": self.show_bucket,
        }

    def execute(self, command: Command, words: Words, named: Named) -> None:
        self.runner.run(_awaited(command(words, named)))

    def begin_block(self) -> None:
        super().begin_block()
        self.begun_s = self.runner.get_loop().time()

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.is_up:
                self.runner.run(broker.crash())
        self.runner.close()

    def say(self, text: str) -> None:
        """Show an event with its time."""
        self.show(f"{round((self.runner.get_loop().time() - self.begun_s) * 1000):5} {text}")

    # ---- output

    def _report_events(self) -> None:
        metadata = self.bucket.metadata
        apply = metadata._apply

        def report(event: RemoteSegment | SegmentUpdate | PartitionDelete) -> None:
            apply(event)
            if isinstance(event, PartitionDelete):
                self.say(f"{event.broker_id} publishes DELETE_PARTITION_{event.state.name}")
                return
            if isinstance(event, RemoteSegment):
                epochs = " ".join(f"{epoch}@{offset}" for epoch, offset in event.leader_epochs)
                name = f"s{len(self.names) + 1}[{event.start_offset}-{event.end_offset}]"
                self.names.setdefault(event.id.id, name)  # a renewed lease repeats COPY_STARTED
                self.say(f"{event.broker_id} publishes {event.state.name} {self._name(event.id.id)} {{{epochs}}}")
            else:
                self.say(f"{event.broker_id} publishes {event.state.name} {self._name(event.id.id)}")

        metadata._apply = report  # type: ignore[method-assign]

    def _name(self, segment: bytes) -> str:
        return self.names.get(segment, "unknown")

    def _on_call(self, operation: Operation, segment: RemoteSegment) -> Fault | None:
        fault: Fault | None = None
        if self.is_down:
            fault = Fault(RetriableRemoteStorageError("the store is down"))
        elif self.faults and self.faults[0][0] == operation:
            fault = Fault(RemoteStorageError("failed"), applies=self.faults.pop(0)[1])
        outcome = "" if fault is None else f": {fault.error}" + (", after it took effect" if fault.applies else "")
        self.say(f"  store: {operation} {self._name(segment.id.id)}{outcome}")
        return fault

    # ---- commands

    async def broker(self, words: Words, named: Named) -> None:
        number, upload_s = int(words[0]), float(named.get("upload", "500")) / 1000
        if number not in self.brokers:
            self.brokers[number] = Broker(self.bucket, number, upload_s=lambda: upload_s)
        broker = self.brokers[number].start()
        replica = broker.replica()

        def moved() -> None:
            self.say(f"{number} raises its log start offset to {replica.log.log_start_offset}")

        replica.on_log_start_moved = moved  # type: ignore[method-assign]

    async def lead(self, words: Words, named: Named) -> None:
        self.brokers[int(words[0])].lead(int(named["epoch"]))

    async def follow(self, words: Words, named: Named) -> None:
        self.brokers[int(words[0])].follow(int(named["epoch"]))

    async def fill(self, words: Words, named: Named) -> None:
        self.brokers[int(words[0])].fill(int(words[1]), records=int(named.get("records", "10")))

    async def append(self, words: Words, _: Named) -> None:
        broker = self.brokers[int(words[0])]
        replica, now_ms = broker.replica(), broker.clock.now_ms()
        data = build_batch([Record(now_ms, b"k", b"v")] * int(words[1]))
        replica.log.append_as_leader(bytearray(data), LeaderEpoch(replica.leader_epoch), now_ms=now_ms)

    async def commit(self, words: Words, _: Named) -> None:
        log = self._log(words[0])
        log.advance_high_watermark(log.log_end_offset if words[1] == "end" else int(words[1]))

    async def replicate(self, words: Words, named: Named) -> None:
        now_ms = self.brokers[int(words[0])].clock.now_ms()
        replicate(self._log(words[0]), self._log(words[1]), now_ms)
        if named.get("roll") == "yes":
            self._log(words[1]).roll(now_ms)

    async def config(self, words: Words, _: Named) -> None:
        value: object = {"true": True, "false": False}.get(words[1])
        for broker in self.brokers.values():
            broker.configure(**{words[0].replace(".", "_"): int(words[1]) if value is None else value})

    async def trim(self, words: Words, _: Named) -> None:
        self._log(words[0]).maybe_increment_log_start_offset(int(words[1]))

    async def retain(self, words: Words, _: Named) -> None:
        for expired in self.brokers[int(words[0])].retain():
            for segment in expired.segments:
                self.say(f"{words[0]} deletes local segment {segment.base_offset}-: {expired.reason.value}")

    async def store(self, words: Words, _: Named) -> None:
        if words[0] == "fail":
            self.faults.append((words[1], words[-1] == "lost"))
        else:
            self.is_down = words[0] == "down"

    async def metadata(self, words: Words, _: Named) -> None:
        if words[0] == "hold":
            self.bucket.metadata.is_held = True
        else:
            self.bucket.metadata.release()

    async def advance(self, words: Words, _: Named) -> None:
        await asyncio.sleep(float(words[0]))

    async def crash(self, words: Words, _: Named) -> None:
        await self.brokers[int(words[0])].crash()

    async def stop(self, words: Words, _: Named) -> None:
        await self.brokers[int(words[0])].stop()
        self.say(f"{words[0]} stopped")

    async def delete_topic(self, _: Words, __: Named) -> None:
        self.bucket.topics.clear()
        for broker in self.brokers.values():
            if broker.is_up:
                broker.unhost()
                broker.manager.on_topics_deleted([TOPIC_ID])

    async def status(self, words: Words, _: Named) -> None:
        broker, log = self.brokers[int(words[0])], self._log(words[0])
        bases = " ".join(str(segment.base_offset) for segment in log.segments)
        lag = broker.metrics.topic("t").copy_lag.segments
        self.show(
            f"{words[0]}: log {log.log_start_offset} to {log.log_end_offset}, local segments {bases}, "
            f"highest remote offset {log.highest_remote_offset}, copy lag {lag}"
        )

    async def show_bucket(self, _: Words, __: Named) -> None:
        known = self.bucket.segments()
        for segment in known:
            stored = "stored" if segment.id.id in self.bucket.storage.stored else "nothing stored"
            self.show(f"{self._name(segment.id.id)} {segment.state.name}, {stored}")
        for orphan in sorted(self.bucket.orphans()):
            self.show(f"{self._name(orphan)} stored, without metadata")
        if not known and not self.bucket.storage.stored:
            self.show("no segments")

    def _log(self, number: str) -> Log:
        return self.brokers[int(number)].replica().log


async def _awaited(work: object) -> None:
    assert isinstance(work, Awaitable)
    await work
