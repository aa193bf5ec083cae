import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * What a Java application sees of an unclean election, told line by line: a broker that behaves differently tells
 * another story. Nothing that is printed depends on time, ports or chance; epochs are told relative to the first.
 *
 * <p>Arguments: the bootstrap address, the topics of one partition each, the offset up to which readers read at first.
 * It prints "ready" and waits for a line on standard input, once per event: the records are there; others have taken
 * their place; the first leader leads again; the end.
 */
public class TruncationStories {
    private static final long PATIENCE_MS = 30_000;
    private static final List<String> POLICIES = List.of("earliest", "latest", "none");

    private static String bootstrap;
    private static long position;

    public static void main(String[] arguments) {
        try {
            tell(arguments);
        } catch (Throwable error) {  // the launcher of source files cannot always print it
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private static void tell(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        List<String> topics = List.of(arguments[1].split(","));
        position = Long.parseLong(arguments[2]);
        BufferedReader events = new BufferedReader(new InputStreamReader(System.in));
        Map<String, Story> stories = new LinkedHashMap<>();
        for (String topic : topics) {
            stories.put(topic, new Story(topic));
        }
        await(events);
        stories.values().forEach(Story::before);
        await(events);
        stories.values().forEach(Story::afterElection);
        await(events);
        stories.values().forEach(Story::afterReturn);
        await(events);
    }

    private static void await(BufferedReader events) throws Exception {
        System.out.println("ready");
        System.out.flush();
        if (events.readLine() == null) {
            throw new IllegalStateException("nobody is there to tell");
        }
    }

    /** One topic, and the readers that have seen its lost records. */
    private static class Story {
        private final String topic;
        private final TopicPartition partition;
        private final Map<String, Reader> live = new LinkedHashMap<>();
        private final List<Reader> lateReaders = new ArrayList<>();
        private OffsetAndMetadata external;

        Story(String topic) {
            this.topic = topic;
            this.partition = new TopicPartition(topic, 0);
        }

        void before() {
            for (String policy : POLICIES) {
                Reader reader = new Reader(partition, policy, topic + "-" + policy);
                reader.seek(new OffsetAndMetadata(0));
                tell(policy + " has read", reader.readTo(position));
                live.put(policy, reader);
            }
            live.get("none").consumer.commitSync();
            tell("committed", told(live.get("none").committed()));
            try (Reader unknowing = new Reader(partition, "none", topic + "-unknowing")) {
                unknowing.commit(new OffsetAndMetadata(position));
                tell("committed without an epoch", told(unknowing.committed()));
            }
            try (Reader looking = new Reader(partition, "none", topic + "-external")) {
                OffsetAndTimestamp last = looking.lastByTime();
                external = new OffsetAndMetadata(last.offset(), last.leaderEpoch(), "");
                tell("found by time", told(external));
            }
            // This one does not poll before the first leader is back, and then asks that one.
            Reader late = new Reader(partition, "none", topic + "-late");
            late.seek(new OffsetAndMetadata(0));
            tell("late has read", late.readTo(position));
            lateReaders.add(late);
        }

        void afterElection() {
            for (String policy : POLICIES) {
                tell(policy + " goes on", live.get(policy).next());
            }
            Reader told = live.get("none");
            told.seek(told.divergence);
            tell("none goes on where it is told", told.next());
            for (String policy : POLICIES) {
                try (Reader restarted = new Reader(partition, policy, topic + "-none")) {
                    tell(policy + " restarted", restarted.next());
                }
                try (Reader seeking = new Reader(partition, policy, topic + "-external")) {
                    seeking.seek(external);
                    tell(policy + " has sought", seeking.next());
                }
            }
            try (Reader unknowing = new Reader(partition, "none", topic + "-unknowing")) {
                tell("none restarted without an epoch", unknowing.next());
            }
            try (Reader looking = new Reader(partition, "none", topic + "-external")) {
                OffsetAndTimestamp last = looking.lastByTime();
                tell("found by time", told(new OffsetAndMetadata(last.offset(), last.leaderEpoch(), "")));
            }
        }

        void afterReturn() {
            Reader late = lateReaders.get(0);
            tell("late goes on", late.next());
            for (String policy : POLICIES) {
                tell(policy + " is left in peace", live.get(policy).readToEnd());
            }
            late.close();
            live.values().forEach(Reader::close);
        }

        private void tell(String what, String outcome) {
            System.out.println(topic + ": " + what + ": " + outcome);
        }
    }

    /** A consumer of one partition, in a group of its own. */
    private static class Reader implements AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final TopicPartition partition;
        OffsetAndMetadata divergence;

        Reader(TopicPartition partition, String policy, String group) {
            this.partition = partition;
            Properties properties = new Properties();
            properties.put("bootstrap.servers", bootstrap);
            properties.put("group.id", group);
            properties.put("auto.offset.reset", policy);
            properties.put("enable.auto.commit", "false");
            properties.put("request.timeout.ms", "5000");
            properties.put("default.api.timeout.ms", "30000");
            properties.put("reconnect.backoff.max.ms", "500");
            consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
            consumer.assign(List.of(partition));
        }

        void seek(OffsetAndMetadata offset) {
            consumer.seek(partition, offset);
        }

        void commit(OffsetAndMetadata offset) {
            consumer.commitSync(Map.of(partition, offset));
        }

        OffsetAndMetadata committed() {
            return consumer.committed(java.util.Set.of(partition)).get(partition);
        }

        /** The record with the largest timestamp that is asked for: the last that was produced. */
        OffsetAndTimestamp lastByTime() {
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            seek(new OffsetAndMetadata(end - 1));
            ConsumerRecord<String, String> last = nextRecord();
            return consumer.offsetsForTimes(Map.of(partition, last.timestamp())).get(partition);
        }

        /** What there is to read up to an offset, records as they come. */
        String readTo(long end) {
            List<String> seen = new ArrayList<>();
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200)).records(partition)) {
                    seen.add(told(record));
                }
            }
            return String.join(" ", seen);
        }

        String readToEnd() {
            return readTo(consumer.endOffsets(List.of(partition)).get(partition));
        }

        ConsumerRecord<String, String> nextRecord() {
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200)).records(partition)) {
                    consumer.seek(
                        partition, new OffsetAndMetadata(record.offset() + 1, record.leaderEpoch(), ""));
                    return record;
                }
            }
            throw new IllegalStateException("nothing came");
        }

        /** The next record, or what is raised in its place. */
        String next() {
            try {
                return told(nextRecord());
            } catch (LogTruncationException error) {
                divergence = error.divergentOffsets().get(partition);
                return "LogTruncationException " + told(divergence);
            } catch (OffsetOutOfRangeException error) {
                return "OffsetOutOfRangeException " + error.offsetOutOfRangePartitions().get(partition);
            } catch (RuntimeException error) {
                return error.toString();
            }
        }

        @Override
        public void close() {
            consumer.close(org.apache.kafka.clients.consumer.CloseOptions.timeout(Duration.ofSeconds(1)));
        }
    }

    private static String told(ConsumerRecord<String, String> record) {
        return record.offset() + "=" + record.value() + "@" + told(record.leaderEpoch());
    }

    private static String told(OffsetAndMetadata offset) {
        return offset == null ? "none" : offset.offset() + "@" + told(offset.leaderEpoch());
    }

    private static String told(Optional<Integer> epoch) {
        return epoch.map(each -> each == 0 ? "first" : "later").orElse("unknown");
    }
}
