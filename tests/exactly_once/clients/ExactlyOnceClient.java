import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Worker with the Java client: consume, transform and produce in transactions, equivalent to librdkafka.py. */
public final class ExactlyOnceClient {
    static final double SLOW_SHARE = 0.03;
    static final double ABORTED_SHARE = 0.04;
    static final long SLOW_MS = 400;

    final String source;
    final String target;
    final String name;
    final Random random;
    final KafkaProducer<byte[], byte[]> producer;
    final KafkaConsumer<byte[], byte[]> consumer;

    ExactlyOnceClient(String[] arguments) {
        source = arguments[1];
        target = arguments[2];
        name = arguments[5] + "." + arguments[6];
        random = new Random((arguments[7] + name).hashCode());
        Properties common = new Properties();
        common.put("bootstrap.servers", arguments[0]);
        common.put("reconnect.backoff.max.ms", "500");
        common.put("request.timeout.ms", "5000");
        Properties writing = new Properties();
        writing.putAll(common);
        writing.put("transactional.id", arguments[5]);
        writing.put("transaction.timeout.ms", "30000");
        writing.put("delivery.timeout.ms", "30000");
        writing.put("linger.ms", "5");
        producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer());
        Properties reading = new Properties();
        reading.putAll(common);
        reading.put("group.id", arguments[3]);
        reading.put("group.protocol", arguments[4]);
        if (!arguments[4].equals("consumer")) {
            reading.put("session.timeout.ms", "6000");
            reading.put("heartbeat.interval.ms", "1000");
        }
        reading.put("isolation.level", "read_committed");
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void report(String line) {
        System.out.println(line);
        System.out.flush();
    }

    void run() {
        producer.initTransactions();
        consumer.subscribe(java.util.List.of(source));
        for (long number = 1; ; ) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
            if (!records.isEmpty()) {
                transact(name + "." + number++, records);
            }
        }
    }

    void transact(String transaction, ConsumerRecords<byte[], byte[]> records) {
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> each : records) {
                String value = new String(each.key(), StandardCharsets.US_ASCII) + " " + transaction;
                byte[] bytes = value.getBytes(StandardCharsets.US_ASCII);
                producer.send(new ProducerRecord<>(target, each.partition(), each.key(), bytes));
                offsets.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
            }
            if (random.nextDouble() < ABORTED_SHARE) {
                producer.flush();
                abort(transaction);
                return;
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            if (random.nextDouble() < SLOW_SHARE) {
                producer.flush();
                sleep();
            }
            report("commit " + transaction + " " + System.currentTimeMillis() + " " + records.count());
            commit();
            report("committed " + transaction);
        } catch (ProducerFencedException | InvalidProducerEpochException | OutOfOrderSequenceException
                | AuthorizationException error) {
            throw error;
        } catch (KafkaException error) {
            System.err.println(transaction + ": " + error);
            abort(transaction);
        }
    }

    /** Try again after a timeout: the outcome is unknown until then. */
    void commit() {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException error) {
                System.err.println(name + ": " + error);
            }
        }
    }

    void abort(String transaction) {
        while (true) {
            try {
                producer.abortTransaction();
                break;
            } catch (TimeoutException error) {
                System.err.println(name + ": " + error);
            }
        }
        report("aborted " + transaction);
        rewind();
    }

    /** Continue at the committed offsets. */
    void rewind() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (Map.Entry<TopicPartition, OffsetAndMetadata> each : committed.entrySet()) {
            consumer.seek(each.getKey(), each.getValue() == null ? 0 : each.getValue().offset());
        }
    }

    static void sleep() {
        try {
            Thread.sleep(SLOW_MS);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) {
        Thread ending = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException error) {
                // The end of standard input and its loss mean the same.
            }
            Runtime.getRuntime().halt(0);
        });
        ending.setDaemon(true);
        ending.start();
        try {
            new ExactlyOnceClient(arguments).run();
        } catch (Throwable error) {
            System.err.println(arguments[5] + "." + arguments[6] + ": " + error);
            Runtime.getRuntime().halt(1);
        }
    }
}
