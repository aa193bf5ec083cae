import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache Kafka client program of the chaos run: a producer or a consumer, equivalent to librdkafka.py. */
public final class ChaosClient {
    static final int CHUNK = 16;
    static final long FLUSH_MS = 50;
    static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
    static volatile boolean finish;

    /** Adjacent records that are not reported yet. */
    static final class Run {
        long time;
        long offset;
        long length;
        long sequence;
        int producer;
        int epoch;
    }

    /** Runs of adjacent records per partition, reported with a short delay. */
    static final class Runs {
        final boolean acks;
        final Run[] open;

        Runs(boolean acks, int partitions) {
            this.acks = acks;
            open = new Run[partitions];
        }

        synchronized void add(int partition, long offset, long sequence, int producer, int epoch) {
            Run run = open[partition];
            if (run != null && offset >= 0 && offset == run.offset + run.length && sequence == run.sequence + run.length
                    && producer == run.producer && epoch == run.epoch) {
                run.length++;
                return;
            }
            tell(partition);
            run = open[partition] = new Run();
            run.time = System.currentTimeMillis();
            run.offset = offset;
            run.length = 1;
            run.sequence = sequence;
            run.producer = producer;
            run.epoch = epoch;
        }

        private void tell(int partition) {
            Run run = open[partition];
            if (run == null) {
                return;
            }
            open[partition] = null;
            String start = run.time + " " + partition + " " + run.offset + " " + run.length + " ";
            ChaosClient.tell(acks
                    ? "acked " + start + run.sequence
                    : "polled " + start + run.producer + " " + run.sequence + " " + run.epoch);
        }

        synchronized void tellAll() {
            for (int partition = 0; partition < open.length; partition++) {
                tell(partition);
            }
            OUT.flush();
        }
    }

    static void tell(String line) {
        synchronized (OUT) {
            OUT.print(line + "\n");
        }
    }

    static void note(String text) {
        tell("note " + System.currentTimeMillis() + " " + text.replace('\n', ' '));
    }

    /** Standard input: "finish" requests a clean end. When it closes, the run has ended and this program exits. */
    static void readCommands() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                finish |= line.trim().equals("finish");
            }
        } catch (java.io.IOException gone) {
            // An unreadable input counts as closed.
        }
        Runtime.getRuntime().halt(3);
    }

    static void flushForever(Runs runs) {
        try {
            while (true) {
                Thread.sleep(FLUSH_MS);
                runs.tellAll();
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    static void background(Runnable body) {
        Thread thread = new Thread(body);
        thread.setDaemon(true);
        thread.start();
    }

    static Properties common(String bootstrap) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("request.timeout.ms", "5000");
        config.put("socket.connection.setup.timeout.ms", "2000");
        config.put("socket.connection.setup.timeout.max.ms", "2000");
        config.put("reconnect.backoff.ms", "50");
        config.put("reconnect.backoff.max.ms", "500");
        config.put("retry.backoff.ms", "50");
        config.put("retry.backoff.max.ms", "500");
        config.put("metadata.max.age.ms", "3000");
        String user = System.getenv("CHAOS_USER");
        if (user != null) {
            config.put("security.protocol", "SASL_SSL");
            config.put("sasl.mechanism", "SCRAM-SHA-512");
            config.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\""
                    + user + "\" password=\"" + System.getenv("CHAOS_PASSWORD") + "\";");
            config.put("ssl.truststore.type", "PEM");
            config.put("ssl.truststore.location", System.getenv("CHAOS_AUTHORITY"));
        }
        return config;
    }

    public static void main(String[] arguments) throws Exception {
        background(ChaosClient::readCommands);
        String bootstrap = arguments[1];
        String topic = arguments[2];
        int partitions = Integer.parseInt(arguments[3]);
        if (arguments[0].equals("produce")) {
            int rate = Integer.parseInt(arguments[5]);
            int size = Integer.parseInt(arguments[6]);
            produce(bootstrap, topic, partitions, Integer.parseInt(arguments[4]), rate, size, arguments[7]);
        } else {
            consume(bootstrap, topic, partitions);
        }
        OUT.flush();
        Runtime.getRuntime().halt(0);
    }

    static void produce(
            String bootstrap, String topic, int partitions, int id, int rate, int size, String acks) throws Exception {
        Properties config = common(bootstrap);
        config.put("acks", acks);
        config.put("enable.idempotence", acks.equals("all") ? "true" : "false");
        if (!acks.equals("all")) {
            config.put("retries", "0");
        }
        config.put("linger.ms", "10");
        config.put("max.block.ms", "60000");
        config.put("delivery.timeout.ms", "120000");
        Runs runs = new Runs(true, partitions);
        background(() -> flushForever(runs));
        long[] sequences = new long[partitions];
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            double budget = 0;
            long before = System.nanoTime();
            int partition = 0;
            while (!finish) {
                long now = System.nanoTime();
                budget = Math.min(budget + (now - before) * 1e-9 * rate, rate);
                before = now;
                for (; budget >= CHUNK; budget -= CHUNK) {
                    for (int each = 0; each < CHUNK; each++) {
                        send(producer, runs, topic, partition, id, sequences[partition]++, size);
                    }
                    partition = (partition + 1) % partitions;
                }
                Thread.sleep(10);
            }
            producer.flush();
        }
        runs.tellAll();
    }

    static void send(
            KafkaProducer<byte[], byte[]> producer, Runs runs, String topic, int partition, int id, long sequence,
            int size) {
        byte[] value = new byte[size];
        Arrays.fill(value, (byte) '.');
        byte[] start = (id + " " + partition + " " + sequence + " ").getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(start, 0, value, 0, start.length);
        producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
            if (error == null) {
                runs.add(partition, metadata.hasOffset() ? metadata.offset() : -1, sequence, id, -1);
            } else {
                String what = error.getClass().getSimpleName();
                tell("failed " + System.currentTimeMillis() + " " + partition + " 1 " + sequence + " " + what);
            }
        });
    }

    static void consume(String bootstrap, String topic, int partitions) {
        Properties config = common(bootstrap);
        config.put("auto.offset.reset", "none");
        config.put("enable.auto.commit", "false");
        config.put("fetch.max.wait.ms", "100");
        config.put("default.api.timeout.ms", "30000");
        Runs runs = new Runs(false, partitions);
        background(() -> flushForever(runs));
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = new ArrayList<>();
            for (int partition = 0; partition < partitions; partition++) {
                all.add(new TopicPartition(topic, partition));
            }
            consumer.assign(all);
            all.forEach(partition -> consumer.seek(partition, 0));
            while (!finish) {
                try {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        onRecord(runs, record);
                    }
                } catch (OffsetOutOfRangeException cut) {
                    runs.tellAll();
                    resume(consumer, cut);
                }
            }
        }
        runs.tellAll();
    }

    static void onRecord(Runs runs, ConsumerRecord<byte[], byte[]> record) {
        String[] fields = new String(record.value(), StandardCharsets.US_ASCII).split(" ", 4);
        if (fields.length != 4 || Integer.parseInt(fields[1]) != record.partition()) {
            tell("strange " + System.currentTimeMillis() + " " + record.partition() + " " + record.offset()
                    + " a value of " + record.value().length + " bytes");
            return;
        }
        runs.add(record.partition(), record.offset(), Long.parseLong(fields[2]), Integer.parseInt(fields[0]),
                record.leaderEpoch().orElse(-1));
    }

    /** Handles a truncation at a known offset or, when out of range, at the log end offset or below. */
    static void resume(KafkaConsumer<byte[], byte[]> consumer, OffsetOutOfRangeException cut) {
        note(cut.toString());
        Map<TopicPartition, OffsetAndMetadata> diverged = new HashMap<>();
        if (cut instanceof LogTruncationException truncation) {
            diverged.putAll(truncation.divergentOffsets());
        }
        Map<TopicPartition, Long> positions = cut.offsetOutOfRangePartitions();
        Map<TopicPartition, Long> ends = consumer.endOffsets(positions.keySet());
        positions.forEach((partition, position) -> {
            OffsetAndMetadata known = diverged.get(partition);
            long to = Math.min(position, known != null ? known.offset() : ends.get(partition));
            tell("truncated " + System.currentTimeMillis() + " " + partition.partition() + " " + position + " " + to);
            consumer.seek(partition, known != null ? known : new OffsetAndMetadata(to));
        });
    }
}
