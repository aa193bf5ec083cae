import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Copies records from "orders" to "invoices", each exactly once: records and offsets in one transaction. */
public class Transaction {
    public static void main(String[] arguments) {
        String bootstrap = Objects.requireNonNullElse(System.getenv("BOOTSTRAP"), "127.0.0.1:9092");
        Map<String, Object> reading = Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", "java-invoicing",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false,
                "isolation.level", "read_committed");
        Map<String, Object> writing = Map.of("bootstrap.servers", bootstrap, "transactional.id", "java-invoicing");
        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
                var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of("orders"));
            int count = 0;
            while (count < 10) {
                var records = consumer.poll(Duration.ofSeconds(1));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                var offsets = new HashMap<TopicPartition, OffsetAndMetadata>();
                for (var record : records) {
                    producer.send(new ProducerRecord<>("invoices", record.key(), "invoice for " + record.value()));
                    var partition = new TopicPartition(record.topic(), record.partition());
                    offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
                count += records.count();
                System.out.println("committed " + count + " records");
            }
        }
    }
}
