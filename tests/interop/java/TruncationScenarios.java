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
 * Program that prints what Java consumers observe of an unclean election, for comparison between brokers. The output
 * does not depend on time, ports or chance; leader epochs are printed relative to the first.
 *
 * <p>Arguments: the bootstrap address, topics of one partition each, the offset up to which readers read at first. The
 * program prints "ready" and waits for a line on standard input before each event: the records are written; other
 * records have replaced them; the first leader leads again; the end.
 */
public class TruncationScenarios {
    private static final long TIMEOUT_MS = 30_000;
    private static final List<String> POLICIES = List.of("earliest", "latest", "none");

    private static String bootstrap;
    private static long position;

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable error) {  // the launcher of source files cannot always print it
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private static void run(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        List<String> topics = List.of(arguments[1].split(","));
        position = Long.parseLong(arguments[2]);
        BufferedReader events = new BufferedReader(new InputStreamReader(System.in));
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        for (String topic : topics) {
            scenarios.put(topic, new Scenario(topic));
        }
        await(events);
        scenarios.values().forEach(Scenario::before);
        await(events);
        scenarios.values().forEach(Scenario::afterElection);
        await(events);
        scenarios.values().forEach(Scenario::afterReturn);
        await(events);
    }

    private static void await(BufferedReader events) throws Exception {
        System.out.println("ready");
        System.out.flush();
        if (events.readLine() == null) {
            throw new IllegalStateException("standard input is closed");
        }
    }

    /** A topic and the readers that have read its lost records. */
    private static class Scenario {
        private final String topic;
        private final TopicPartition partition;
        private final Map<String, Reader> live = new LinkedHashMap<>();
        private final List<Reader> lateReaders = new ArrayList<>();
        private OffsetAndMetadata external;

        Scenario(String topic) {
            this.topic = topic;
            this.partition = new TopicPartition(topic, 0);
        }

        void before() {
            for (String policy : POLICIES) {
                Reader reader = new Reader(partition, policy, topic + "-" + policy);
                reader.seek(new OffsetAndMetadata(0));
                print(policy + " has read", reader.readTo(position));
                live.put(policy, reader);
            }
            live.get("none").consumer.commitSync();
            print("committed", format(live.get("none").committed()));
            try (Reader withoutEpoch = new Reader(partition, "none", topic + "-unknowing")) {
                withoutEpoch.commit(new OffsetAndMetadata(position));
                print("committed without an epoch", format(withoutEpoch.committed()));
            }
            try (Reader lookup = new Reader(partition, "none", topic + "-external")) {
                OffsetAndTimestamp last = lookup.lastByTime();
                external = new OffsetAndMetadata(last.offset(), last.leaderEpoch(), "");
                print("found by time", format(external));
            }
            // This reader does not poll before the first leader leads again, and then validates its position there.
            Reader late = new Reader(partition, "none", topic + "-late");
            late.seek(new OffsetAndMetadata(0));
            print("late has read", late.readTo(position));
            lateReaders.add(late);
        }

        void afterElection() {
            for (String policy : POLICIES) {
                print(policy + " continues", live.get(policy).next());
            }
            Reader none = live.get("none");
            none.seek(none.divergence);
            print("none resumes at the divergence", none.next());
            for (String policy : POLICIES) {
                try (Reader restarted = new Reader(partition, policy, topic + "-none")) {
                    print(policy + " restarted", restarted.next());
                }
                try (Reader seeker = new Reader(partition, policy, topic + "-external")) {
                    seeker.seek(external);
                    print(policy + " after a seek", seeker.next());
                }
            }
            try (Reader withoutEpoch = new Reader(partition, "none", topic + "-unknowing")) {
                print("none restarted without an epoch", withoutEpoch.next());
            }
            try (Reader lookup = new Reader(partition, "none", topic + "-external")) {
                OffsetAndTimestamp last = lookup.lastByTime();
                print("found by time", format(new OffsetAndMetadata(last.offset(), last.leaderEpoch(), "")));
            }
        }

        void afterReturn() {
            Reader late = lateReaders.get(0);
            print("late continues", late.next());
            for (String policy : POLICIES) {
                print(policy + " is undisturbed", live.get(policy).readToEnd());
            }
            late.close();
            live.values().forEach(Reader::close);
        }

        private void print(String what, String outcome) {
            System.out.println(topic + ": " + what + ": " + outcome);
        }
    }

    /** A consumer of one partition with its own group. */
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

        /** Returns the offset, by timestamp, of the last record that was produced. */
        OffsetAndTimestamp lastByTime() {
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            seek(new OffsetAndMetadata(end - 1));
            ConsumerRecord<String, String> last = nextRecord();
            return consumer.offsetsForTimes(Map.of(partition, last.timestamp())).get(partition);
        }

        /** Returns the records up to an offset, in the order received. */
        String readTo(long end) {
            List<String> seen = new ArrayList<>();
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200)).records(partition)) {
                    seen.add(format(record));
                }
            }
            return String.join(" ", seen);
        }

        String readToEnd() {
            return readTo(consumer.endOffsets(List.of(partition)).get(partition));
        }

        ConsumerRecord<String, String> nextRecord() {
            long deadline = System.currentTimeMillis() + TIMEOUT_MS;
            while (System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200)).records(partition)) {
                    consumer.seek(
                        partition, new OffsetAndMetadata(record.offset() + 1, record.leaderEpoch(), ""));
                    return record;
                }
            }
            throw new IllegalStateException("no record was received");
        }

        /** Returns the next record, or the exception raised instead. */
        String next() {
            try {
                return format(nextRecord());
            } catch (LogTruncationException error) {
                divergence = error.divergentOffsets().get(partition);
                return "LogTruncationException " + format(divergence);
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

    private static String format(ConsumerRecord<String, String> record) {
        return record.offset() + "=" + record.value() + "@" + format(record.leaderEpoch());
    }

    private static String format(OffsetAndMetadata offset) {
        return offset == null ? "none" : offset.offset() + "@" + format(offset.leaderEpoch());
    }

    private static String format(Optional<Integer> epoch) {
        return epoch.map(each -> each == 0 ? "first" : "later").orElse("unknown");
    }
}
