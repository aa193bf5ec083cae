import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * What an application hears of records that are damaged where the broker keeps them, and how it gets past them: reads
 * partition 0 of a topic until it is told twice, then goes on at a given offset until a given end. All that with each
 * of the consumer's two implementations.
 */
public class DamageStories {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long PATIENCE_MS = 60_000;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final TopicPartition partition;
    private long next;

    private DamageStories(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        this.consumer = consumer;
        this.partition = partition;
    }

    public static void main(String[] arguments) {
        for (String protocol : List.of("classic", "consumer")) {
            tell(arguments, protocol);
        }
    }

    private static void tell(String[] arguments, String protocol) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.protocol", protocol);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(partition));
            DamageStories stories = new DamageStories(consumer, partition);
            stories.readFrom(0);
            stories.readUntilTold(Long.MAX_VALUE);
            stories.readUntilTold(Long.MAX_VALUE);
            stories.readFrom(Long.parseLong(arguments[2]));
            stories.readUntilTold(Long.parseLong(arguments[3]));
        }
    }

    private void readFrom(long offset) {
        next = offset;
        consumer.seek(partition, offset);
    }

    private void readUntilTold(long end) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (next < end && System.currentTimeMillis() < deadline) {
            try {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    if (record.offset() != next) {
                        System.out.println("gap " + next + " " + record.offset());
                    }
                    next = record.offset() + 1;
                }
            } catch (KafkaException error) {
                System.out.println("told " + consumer.position(partition) + " " + next + " " + error.getMessage());
                return;
            }
        }
        System.out.println(next < end ? "never told at " + next : "read to " + next);
    }
}
