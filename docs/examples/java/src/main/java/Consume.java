import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Reads ten records of the topic "orders" in a consumer group, and commits their offsets. */
public class Consume {
    public static void main(String[] arguments) {
        String bootstrap = Objects.requireNonNullElse(System.getenv("BOOTSTRAP"), "127.0.0.1:9092");
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", "java-billing",
                "group.protocol", "consumer", // KIP-848; without this line the classic protocol
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false);
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            int count = 0;
            while (count < 10) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(record.key() + " " + record.value());
                    count++;
                }
            }
            consumer.commitSync();
        }
    }
}
