import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Starts the image with Testcontainers' module for apache/kafka, writes a record, and prints it as read back. */
public final class RoundTrip {
    public static void main(String[] arguments) throws Exception {
        var image = DockerImageName.parse(arguments[0]).asCompatibleSubstituteFor("apache/kafka");
        try (var kafka = new KafkaContainer(image)) {
            kafka.start();
            Map<String, Object> settings = Map.of(
                "bootstrap.servers", kafka.getBootstrapServers(), "group.id", "readers", "auto.offset.reset", "earliest");
            try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                producer.send(new ProducerRecord<>("greetings", "key", "hello")).get();
            }
            try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of("greetings"));
                long deadline = System.nanoTime() + Duration.ofMinutes(1).toNanos();
                while (System.nanoTime() < deadline) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                        System.out.println("read " + record.key() + "=" + record.value());
                        return;
                    }
                }
            }
            throw new IllegalStateException("no record within a minute");
        }
    }
}
