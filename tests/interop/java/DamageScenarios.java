import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Program that prints how Java consumers see damaged records and seek past them: it reads partition 0 of a topic until
 * it gets an error twice, then reads from a given offset to a given end. It does so with both of the consumer's
 * implementations.
 */
public class DamageScenarios {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long TIMEOUT_MS = 60_000;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final TopicPartition partition;
    private long next;

    private DamageScenarios(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        this.consumer = consumer;
        this.partition = partition;
    }

    public static void main(String[] arguments) {
        for (String protocol : List.of("classic", "consumer")) {
            run(arguments, protocol);
        }
    }

    private static void run(String[] arguments, String protocol) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.protocol", protocol);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(partition));
            DamageScenarios scenario = new DamageScenarios(consumer, partition);
            scenario.readFrom(0);
            scenario.readUntilError(Long.MAX_VALUE);
            scenario.readUntilError(Long.MAX_VALUE);
            scenario.readFrom(Long.parseLong(arguments[2]));
            scenario.readUntilError(Long.parseLong(arguments[3]));
        }
    }

    private void readFrom(long offset) {
        next = offset;
        consumer.seek(partition, offset);
    }

    private void readUntilError(long end) {
        long deadline = System.currentTimeMillis() + TIMEOUT_MS;
        while (next < end && System.currentTimeMillis() < deadline) {
            try {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    if (record.offset() != next) {
                        System.out.println("gap " + next + " " + record.offset());
                    }
                    next = record.offset() + 1;
                }
            } catch (KafkaException error) {
                System.out.println("error " + consumer.position(partition) + " " + next + " " + error.getMessage());
                return;
            }
        }
        System.out.println(next < end ? "no error at " + next : "read to " + next);
    }
}
