import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Program that prints what Java consumers observe of groups, for comparison between brokers. The output does not depend
 * on time, ports or chance. Argument: the bootstrap address.
 */
public class GroupScenarios {
    private static final String RANGE = "org.apache.kafka.clients.consumer.RangeAssignor";
    private static final String COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
    private static final long TIMEOUT_MS = 60_000;

    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        membersComeAndGo("eager", RANGE);
        membersComeAndGo("cooperative", COOPERATIVE);
        staticMembersRestart();
        manyJoinAtOnce();
        offsetsAreKept();
        subscriptionsFollowTopics();
        positionsAreFound();
        admin.close();
        System.exit(0);
    }

    private static void membersComeAndGo(String topic, String assignor) throws Exception {
        createTopic(topic, 12);
        Member first = new Member(topic, "partition.assignment.strategy", assignor).subscribe(List.of(topic));
        waitAndPrint(topic + ": one has all", () -> first.size() == 12);
        Member second = new Member(topic, "partition.assignment.strategy", assignor).subscribe(List.of(topic));
        Member third = new Member(topic, "partition.assignment.strategy", assignor).subscribe(List.of(topic));
        waitAndPrint(topic + ": three share", () -> first.size() == 4 && second.size() == 4 && third.size() == 4);
        second.close();
        waitAndPrint(topic + ": two share", () -> first.size() == 6 && third.size() == 6);
        first.close();
        third.close();
        waitAndPrint(topic + ": lost nothing", () -> first.lost + second.lost + third.lost == 0);
        waitAndPrint(topic + ": empty", () -> state(topic).equals("Empty"));
    }

    private static void staticMembersRestart() throws Exception {
        createTopic("static", 4);
        Member one = new Member("static", "group.instance.id", "one").subscribe(List.of("static"));
        Member two = new Member("static", "group.instance.id", "two").subscribe(List.of("static"));
        waitAndPrint("static: two share", () -> one.size() == 2 && two.size() == 2);
        int before = one.rebalances;
        two.close();
        waitAndPrint("static: a closed member keeps its place", () -> state("static").equals("Stable"));
        Member twoAgain = new Member("static", "group.instance.id", "two").subscribe(List.of("static"));
        waitAndPrint("static: it has rejoined", () -> twoAgain.size() == 2);
        waitAndPrint("static: other members are undisturbed", () -> one.rebalances == before && one.size() == 2);
        Member imposter = new Member("static", "group.instance.id", "one").subscribe(List.of("static"));
        waitAndPrint("static: the older of two is fenced", () -> "FencedInstanceIdException".equals(one.failure));
        waitAndPrint("static: the younger continues", () -> imposter.size() == 2);
        imposter.close();
        twoAgain.close();
    }

    private static void manyJoinAtOnce() throws Exception {
        createTopic("many", 60);
        List<Member> members = new ArrayList<>();
        for (int number = 0; number < 30; number++) {
            members.add(new Member("many").subscribe(List.of("many")));
        }
        waitAndPrint("many: two each", () -> members.stream().allMatch(member -> member.size() == 2));
        members.forEach(member -> member.stopping = true);
        for (Member member : members) {
            member.close();
        }
        waitAndPrint("many: no failures", () -> members.stream().allMatch(member -> member.failure == null));
    }

    private static void offsetsAreKept() throws Exception {
        createTopic("offsets", 2);
        TopicPartition partition = new TopicPartition("offsets", 0);
        try (KafkaConsumer<String, String> consumer = consumer("offsets")) {
            consumer.assign(List.of(partition));
            System.out.println("offsets: none yet " + consumer.committed(Set.of(partition)));
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(5, Optional.of(0), "note é")));
            System.out.println("offsets: stored " + consumer.committed(Set.of(partition)));
            failing("offsets: long note", () -> consumer.commitSync(
                Map.of(partition, new OffsetAndMetadata(5, "x".repeat(5000)))));
        }
        Member member = new Member("offsets").subscribe(List.of("offsets"));
        waitAndPrint("offsets: a member reads", () -> member.size() == 2);
        failing("offsets: altered under a member", () -> admin.alterConsumerGroupOffsets(
            "offsets", Map.of(partition, new OffsetAndMetadata(3))).all().get());
        failing("offsets: deleted under a member", () -> admin.deleteConsumerGroupOffsets(
            "offsets", Set.of(partition)).all().get());
        failing("offsets: group deleted under a member", () -> admin.deleteConsumerGroups(
            List.of("offsets")).all().get());
        member.close();
        waitAndPrint("offsets: the group is empty", () -> state("offsets").equals("Empty"));
        failing("offsets: altered", () -> admin.alterConsumerGroupOffsets(
            "offsets", Map.of(partition, new OffsetAndMetadata(3))).all().get());
        System.out.println("offsets: " + admin.listConsumerGroupOffsets("offsets")
            .partitionsToOffsetAndMetadata().get());
        failing("offsets: deleted", () -> admin.deleteConsumerGroups(List.of("offsets")).all().get());
        failing("offsets: deleted twice", () -> admin.deleteConsumerGroups(List.of("offsets")).all().get());
    }

    private static void subscriptionsFollowTopics() throws Exception {
        createTopic("pattern-1", 2);
        Member member = new Member("pattern");
        member.consumer.subscribe(Pattern.compile("pattern-.*"), member);
        member.start();
        waitAndPrint("pattern: the first topic", () -> member.size() == 2);
        createTopic("pattern-2", 3);
        waitAndPrint("pattern: a later topic", () -> member.size() == 5);
        admin.createPartitions(Map.of("pattern-1", NewPartitions.increaseTo(4))).all().get();
        waitAndPrint("pattern: more partitions", () -> member.size() == 7);
        produce("pattern-1", 3, 5);
        waitAndPrint("pattern: records of a new partition", () -> member.records == 5);
        member.close();
    }

    private static void positionsAreFound() throws Exception {
        createTopic("positions", 1);
        TopicPartition partition = new TopicPartition("positions", 0);
        produce("positions", 0, 100);
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(40))).all().get();
        try (KafkaConsumer<String, String> consumer = consumer("positions", "isolation.level", "read_committed")) {
            consumer.assign(List.of(partition));
            for (long time : new long[] {0, 1_700_000_050_500L, 1_700_000_099_000L, 1_700_000_099_001L}) {
                System.out.println("positions: at " + time + " " + consumer.offsetsForTimes(Map.of(partition, time)));
            }
            for (long offset : new long[] {10, 5000, 95}) {
                consumer.seek(partition, offset);
                System.out.println("positions: from " + offset + " the next record is " + firstOffset(consumer));
            }
            System.out.println("positions: end " + consumer.endOffsets(List.of(partition)));
        }
        try (KafkaConsumer<String, String> consumer = consumer("positions", "auto.offset.reset", "none")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 10);
            failing("positions: without a reset policy", () -> firstOffset(consumer));
        }
    }

    private static long firstOffset(KafkaConsumer<String, String> consumer) {
        for (long end = System.currentTimeMillis() + TIMEOUT_MS; System.currentTimeMillis() < end; ) {
            for (var record : consumer.poll(Duration.ofMillis(100))) {
                return record.offset();
            }
        }
        return -1;
    }

    private interface Action {
        void run() throws Exception;
    }

    private static void failing(String what, Action action) {
        try {
            action.run();
            System.out.println(what + " done");
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            System.out.println(what + " " + cause.getClass().getSimpleName());
        }
    }

    private static void waitAndPrint(String what, BooleanSupplier condition) throws InterruptedException {
        long end = System.currentTimeMillis() + TIMEOUT_MS;
        while (!condition.getAsBoolean() && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
        System.out.println(what + " " + condition.getAsBoolean());
    }

    private static String state(String group) {
        try {
            return admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState().toString();
        } catch (Exception error) {
            return String.valueOf(error.getCause());
        }
    }

    private static void createTopic(String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
    }

    private static void produce(String topic, int partition, int count) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < count; number++) {
                long time = 1_700_000_000_000L + number * 1000L;
                producer.send(new ProducerRecord<>(topic, partition, time, "key", "value " + number));
            }
        }
    }

    private static KafkaConsumer<String, String> consumer(String group, String... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("session.timeout.ms", "120000");  // no member's session expires, however slow the machine
        settings.put("heartbeat.interval.ms", "300");
        settings.put("metadata.max.age.ms", "500");
        for (int at = 0; at < more.length; at += 2) {
            settings.put(more[at], more[at + 1]);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** A consumer that polls on its own thread. */
    private static final class Member extends Thread implements ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        volatile boolean stopping;
        volatile int rebalances;
        volatile int lost;
        volatile int records;
        volatile String failure;
        private volatile Set<TopicPartition> assigned = Set.of();

        Member(String group, String... more) {
            consumer = consumer(group, more);
        }

        Member subscribe(Collection<String> topics) {
            consumer.subscribe(topics, this);
            start();
            return this;
        }

        int size() {
            return assigned.size();
        }

        @Override
        public void run() {
            try {
                while (!stopping) {
                    records += consumer.poll(Duration.ofMillis(50)).count();
                    assigned = new HashSet<>(consumer.assignment());
                }
                consumer.close();
            } catch (RuntimeException error) {
                failure = error.getClass().getSimpleName();
            }
        }

        void close() throws InterruptedException {
            stopping = true;
            join();
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) { }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            rebalances++;
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            lost += partitions.size();
        }
    }
}
