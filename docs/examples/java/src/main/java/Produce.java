import java.util.Map;
import java.util.Objects;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes ten records to the topic "orders", and waits until all in-sync replicas have them. */
public class Produce {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = Objects.requireNonNullElse(System.getenv("BOOTSTRAP"), "127.0.0.1:9092");
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "acks", "all");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < 10; number++) {
                var record = new ProducerRecord<>("orders", "customer-" + number % 3, "order " + number);
                var written = producer.send(record).get();
                System.out.println(written.topic() + "-" + written.partition() + " offset " + written.offset());
            }
        }
    }
}
