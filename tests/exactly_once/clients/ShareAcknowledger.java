import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group that accepts each record explicitly. Arguments: bootstrap servers, group, topic, and the
 * milliseconds of work for the records of one poll, so that a kill finds records that are acquired.
 *
 * <p>Lines on standard output, each with a time in microseconds since 1970: "got TIME PARTITION:OFFSET,…" before the
 * records of a poll are acknowledged, "done TIME PARTITION:OFFSET,…" once the broker has confirmed acknowledgements, and
 * "failed TIME PARTITION:OFFSET,…" for those that it refused or that have no answer.
 */
public final class ShareAcknowledger {
    private static void say(String what, String records) {
        long now = System.currentTimeMillis() * 1_000 + (System.nanoTime() / 1_000) % 1_000;
        System.out.println(what + " " + now + " " + records);
        System.out.flush();
    }

    private static String text(Map<TopicIdPartition, Set<Long>> acknowledged) {
        return acknowledged.entrySet().stream()
            .flatMap(each -> each.getValue().stream().map(offset -> each.getKey().partition() + ":" + offset))
            .collect(Collectors.joining(","));
    }

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", "200");
        settings.put("reconnect.backoff.max.ms", "500");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings, bytes, bytes)) {
            consumer.setAcknowledgementCommitCallback(
                (offsets, exception) -> say(exception == null ? "done" : "failed", text(offsets)));
            consumer.subscribe(List.of(arguments[2]));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) {
                    continue;
                }
                StringBuilder received = new StringBuilder();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    received.append(received.length() == 0 ? "" : ",");
                    received.append(record.partition()).append(':').append(record.offset());
                }
                say("got", received.toString());
                Thread.sleep(Long.parseLong(arguments[3]));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
                consumer.commitSync();
            }
        }
    }
}
