import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Program that reads partitions from offset 0 to given ends with Apache Kafka's client and prints its findings:
 * "read PARTITION COUNT CRC" per partition, "at PARTITION TIMESTAMP OFFSET" per requested timestamp, and "fault TEXT".
 *
 * Arguments: bootstrap, topic, isolation level, timestamp of number 0, ends as P=N,P=N and timestamps as P=T,P=T.
 * tests/support/clients/checkable_records.py describes the records.
 */
public final class TierReader {
    static final int MAX_FAULTS = 10;
    static final long PATIENCE_MS = 120_000;
    static int faults;

    static void fault(String text) {
        if (faults++ < MAX_FAULTS) {
            System.out.println("fault " + text);
        }
    }

    static List<long[]> pairs(String text) {
        List<long[]> found = new ArrayList<>();
        for (String pair : text.isEmpty() ? new String[0] : text.split(",")) {
            String[] sides = pair.split("=");
            found.add(new long[] {Long.parseLong(sides[0]), Long.parseLong(sides[1])});
        }
        return found;
    }

    public static void main(String[] arguments) {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("isolation.level", arguments[2]);
        config.put("auto.offset.reset", "none");
        config.put("enable.auto.commit", "false");
        config.put("max.poll.records", "5000");
        config.put("metadata.max.age.ms", "3000");
        String topic = arguments[1];
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            read(consumer, topic, Long.parseLong(arguments[3]), pairs(arguments[4]));
            for (long[] asked : pairs(arguments[5])) {
                TopicPartition partition = new TopicPartition(topic, (int) asked[0]);
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, asked[1]), Duration.ofSeconds(60))
                        .get(partition);
                System.out.println("at " + asked[0] + " " + asked[1] + " " + (found == null ? -1 : found.offset()));
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void read(KafkaConsumer<byte[], byte[]> consumer, String topic, long firstMs, List<long[]> asked) {
        Map<TopicPartition, Long> ends = new HashMap<>();
        Map<TopicPartition, Long> positions = new HashMap<>();
        Map<TopicPartition, CRC32> sums = new HashMap<>();
        for (long[] each : asked) {
            TopicPartition partition = new TopicPartition(topic, (int) each[0]);
            ends.put(partition, each[1]);
            positions.put(partition, 0L);
            sums.put(partition, new CRC32());
        }
        consumer.assign(ends.keySet());
        ends.keySet().forEach(partition -> consumer.seek(partition, 0));
        long progress = System.currentTimeMillis();
        while (ends.entrySet().stream().anyMatch(end -> positions.get(end.getKey()) < end.getValue())) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                if (record.offset() < ends.get(partition)) {
                    check(record, positions.get(partition), firstMs);
                    positions.put(partition, record.offset() + 1);
                    sums.get(partition).update(record.value());
                    progress = System.currentTimeMillis();
                }
            }
            if (System.currentTimeMillis() - progress > PATIENCE_MS) {
                fault("no record came for " + PATIENCE_MS + " ms: " + positions + " of " + ends);
                break;
            }
        }
        positions.forEach((partition, position) -> System.out.println(
                "read " + partition.partition() + " " + position + " " + sums.get(partition).getValue()));
    }

    static void check(ConsumerRecord<byte[], byte[]> record, long expected, long firstMs) {
        String where = record.topic() + "-" + record.partition() + " at " + record.offset();
        if (record.offset() != expected) {
            fault(where + ": expected " + expected);
        }
        if (!new String(record.key(), StandardCharsets.US_ASCII).equals(Long.toString(record.offset()))) {
            fault(where + ": another key");
        }
        if (record.timestamp() != firstMs + record.offset()) {
            fault(where + ": the timestamp is " + record.timestamp());
        }
        byte[] value = record.value();
        CRC32 sum = new CRC32();
        sum.update(value, 0, value.length - Integer.BYTES);
        if (Integer.toUnsignedLong(ByteBuffer.wrap(value).getInt(value.length - Integer.BYTES)) != sum.getValue()) {
            fault(where + ": another value");
        }
    }
}
