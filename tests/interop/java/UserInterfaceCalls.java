import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Makes the calls of a user interface, with the classes, methods and options of its source, and prints each outcome.
 * Arguments: "kafbat" or "akhq", then one bootstrap address for each cluster. Compiled with the client that the user
 * interface brings. Lines: index of the cluster, name of the call, outcome without ids, ports and times; tabs between.
 */
public class UserInterfaceCalls {
    private static final Duration POLL = Duration.ofMillis(500);
    private static final TopicPartition FIRST = new TopicPartition("orders", 0);
    private static final ConfigResource ORDERS = new ConfigResource(ConfigResource.Type.TOPIC, "orders");
    private static final ConfigResource BROKER = new ConfigResource(ConfigResource.Type.BROKER, "1");
    /** Keys of KIPs and of later releases that Apache Kafka 4.2 does not list. */
    private static final Set<String> UNKNOWN_TO_KAFKA = Set.of("controller.quorum.fetch.max.bytes",
            "controller.quorum.fetch.snapshot.max.bytes", "follower.fetch.last.tiered.offset.enable",
            "log.remote.copy.lag.bytes", "log.remote.copy.lag.ms", "metadata.snapshot.min.changed_records.ratio",
            "metadata.start.offset.lag.time.max.ms");
    private static final AclBinding ACL = new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL),
            new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));

    private final int index;
    private final String bootstrap;
    private final AdminClient admin;
    private double probe = 1000;

    UserInterfaceCalls(int index, String bootstrap) {
        this.index = index;
        this.bootstrap = bootstrap;
        this.admin = AdminClient.create(Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", 30000));
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 1; i < arguments.length; i++) {
            UserInterfaceCalls calls = new UserInterfaceCalls(i - 1, arguments[i]);
            if (arguments[0].equals("kafbat")) {
                calls.kafbat();
            } else {
                calls.akhq();
            }
        }
        System.exit(0);
    }

    // ---- Kafbat UI: ReactiveAdminClient, ConsumerGroupService, MessagesService, emitter/* ----

    private void kafbat() throws Exception {
        read("describe cluster", () -> cluster(admin.describeCluster(new DescribeClusterOptions())));
        read("describe cluster with rights", () ->
                cluster(admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true))));
        read("describe features", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures());
        read("broker configs", () -> admin.describeConfigs(List.of(BROKER)).all().get());
        read("probe for ACLs", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        call("create topic", () -> admin.createTopics(List.of(new NewTopic("orders", Optional.of(2),
                Optional.of((short) 1)).configs(Map.of("retention.ms", "7200000")))).all().get());
        call("create topic with default replicas", () -> admin.createTopics(List.of(
                new NewTopic("defaults", Optional.of(1), Optional.<Short>empty()).configs(Map.of()))).all().get());
        call("create topic that exists", () -> admin.createTopics(List.of(
                new NewTopic("orders", Optional.of(1), Optional.<Short>empty()))).all().get());
        call("create topic with a bad config", () -> admin.createTopics(List.of(new NewTopic("bad", Optional.of(1),
                Optional.<Short>empty()).configs(Map.of("retention.ms", "soon")))).all().get());
        call("send message", () -> send(Map.of()));
        read("topic names", () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
        read("describe topics", () -> admin.describeTopics(List.of("orders", "defaults")).topicNameValues()
                .get("orders").get());
        read("describe topic that does not exist", () ->
                admin.describeTopics(List.of("nope")).topicNameValues().get("nope").get());
        read("topic configs", () -> admin.describeConfigs(List.of(ORDERS),
                new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(false)).values()
                .get(ORDERS).get());
        read("topic configs with documentation", () -> admin.describeConfigs(List.of(ORDERS),
                new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).values()
                .get(ORDERS).get());
        for (Map.Entry<String, OffsetSpec> each : new TreeMap<>(Map.of("earliest", OffsetSpec.earliest(),
                "latest", OffsetSpec.latest(), "timestamp", OffsetSpec.forTimestamp(0))).entrySet()) {
            read("offsets " + each.getKey(), () -> admin.listOffsets(Map.of(FIRST, each.getValue())).all().get());
        }
        call("update topic config", () -> admin.incrementalAlterConfigs(Map.of(ORDERS, List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE),
                new AlterConfigOp(new ConfigEntry("max.message.bytes", "2000000"), AlterConfigOp.OpType.SET))))
                .all().get());
        call("update broker config", () -> admin.incrementalAlterConfigs(Map.of(BROKER, List.of(
                new AlterConfigOp(new ConfigEntry("log.cleaner.threads", "2"), AlterConfigOp.OpType.SET))))
                .all().get());
        call("update broker config that is read-only", () -> admin.incrementalAlterConfigs(Map.of(BROKER, List.of(
                new AlterConfigOp(new ConfigEntry("broker.id", "2"), AlterConfigOp.OpType.SET)))).all().get());
        read("configs after the updates", () -> List.of(dynamic(ORDERS), dynamic(BROKER)));
        call("increase partitions", () ->
                admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(3))).all().get());
        call("decrease partitions", () ->
                admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(1))).all().get());
        call("change replication factor", () -> admin.alterPartitionReassignments(
                Map.of(FIRST, Optional.of(new NewPartitionReassignment(List.of(1))))).all().get());
        call("reassign to an unknown broker", () -> admin.alterPartitionReassignments(
                Map.of(FIRST, Optional.of(new NewPartitionReassignment(List.of(9))))).all().get());
        read("log directories", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values());
        call("move to an unknown log directory", () -> admin.alterReplicaLogDirs(
                Map.of(new TopicPartitionReplica("orders", 0, 1), "/nowhere")).all().get());
        kafbatMessages();
        kafbatGroups();
        read("quorum", () -> admin.describeMetadataQuorum().quorumInfo().get());
        read("active producers", () -> admin.describeProducers(List.of(FIRST)).all().get().get(FIRST)
                .activeProducers());
        kafbatSecurity();
        call("delete records", () -> admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(2))).all().get());
        call("delete records past the end", () ->
                admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(99))).all().get());
        call("delete topic", () -> admin.deleteTopics(List.of("defaults")).all().get());
        call("delete topic that does not exist", () -> admin.deleteTopics(List.of("nope")).all().get());
        call("delete topic at the end", () -> admin.deleteTopics(List.of("orders")).all().get());
    }

    private void kafbatMessages() throws Exception {
        Map<String, Object> properties = Map.of("auto.offset.reset", "earliest", "enable.auto.commit", "false",
                "allow.auto.create.topics", "false", "max.poll.records", 100);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(properties)) {
            read("partitions of a topic", () -> consumer.partitionsFor("orders"));
            read("partitions of a topic that does not exist", () -> consumer.partitionsFor("nope"));
            read("first offsets by time", () -> consumer.offsetsForTimes(Map.of(FIRST, 0L)));
            read("begin and end offsets", () -> List.of(consumer.beginningOffsets(List.of(FIRST)),
                    consumer.endOffsets(List.of(FIRST))));
            read("offsets of a time in the future", () ->
                    consumer.offsetsForTimes(Map.of(FIRST, System.currentTimeMillis() + 3_600_000)));
            read("read a range", () -> {
                consumer.assign(List.of(FIRST));
                consumer.seek(FIRST, 1);
                List<String> found = new ArrayList<>();
                while (consumer.position(FIRST) < 3) {
                    found.addAll(records(consumer.poll(POLL).records(FIRST)));
                }
                consumer.pause(List.of(FIRST));
                found.add("paused: " + consumer.poll(Duration.ofMillis(50)).count());
                consumer.resume(List.of(FIRST));
                return found;
            });
            read("tail", () -> {
                consumer.assign(List.of(FIRST));
                consumer.seek(FIRST, 3);
                return "records: " + consumer.poll(Duration.ofMillis(50)).count();
            });
        }
    }

    private void kafbatGroups() throws Exception {
        try (KafkaConsumer<byte[], byte[]> member = member("active", Map.of())) {
            read("groups", () -> admin.listConsumerGroups().all().get());
            read("describe groups", () -> admin.describeConsumerGroups(List.of("active")).all().get());
            read("describe group that does not exist", () ->
                    admin.describeConsumerGroups(List.of("nobody")).all().get());
            read("offsets of a group", () -> admin.listConsumerGroupOffsets(
                    Map.of("active", new ListConsumerGroupOffsetsSpec().topicPartitions(null))).all().get());
            read("offsets of partitions of a group", () -> admin.listConsumerGroupOffsets(
                    Map.of("active", new ListConsumerGroupOffsetsSpec().topicPartitions(
                            List.of(FIRST, new TopicPartition("orders", 1))))).all().get());
            call("alter offsets of an active group", () -> admin.alterConsumerGroupOffsets("active",
                    Map.of(FIRST, new OffsetAndMetadata(0))).all().get());
            call("delete offsets of a subscribed topic", () ->
                    admin.deleteConsumerGroupOffsets("active", Set.of(FIRST)).all().get());
            call("delete an active group", () -> admin.deleteConsumerGroups(List.of("active")).all().get());
        }
        call("alter offsets", () -> admin.alterConsumerGroupOffsets("active",
                Map.of(FIRST, new OffsetAndMetadata(1))).all().get());
        read("offsets after the change", () -> admin.listConsumerGroupOffsets(
                Map.of("active", new ListConsumerGroupOffsetsSpec().topicPartitions(null))).all().get());
        call("delete offsets", () -> admin.deleteConsumerGroupOffsets("active", Set.of(FIRST)).all().get());
        call("delete group", () -> admin.deleteConsumerGroups(List.of("active")).all().get());
        call("delete group that does not exist", () -> admin.deleteConsumerGroups(List.of("nobody")).all().get());
    }

    private void kafbatSecurity() throws Exception {
        ClientQuotaEntity alice = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "alice"));
        call("set quota", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(alice,
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1024.0))))).all().get());
        read("quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().get(alice));
        read("quotas of an entity", () -> admin.describeClientQuotas(ClientQuotaFilter.contains(List.of(
                ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, "alice")))).entities().get());
        call("clear quota", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(alice,
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", null))))).all().get());
        call("set unknown quota", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(alice,
                List.of(new ClientQuotaAlteration.Op("no_such_rate", 1.0))))).all().get());
        call("create ACL", () -> admin.createAcls(List.of(ACL)).all().get());
        read("ACLs", () -> admin.describeAcls(new AclBindingFilter(ResourcePatternFilter.ANY,
                AccessControlEntryFilter.ANY)).values().get());
        read("ACLs of a resource", () -> admin.describeAcls(new AclBindingFilter(new ResourcePatternFilter(
                ResourceType.TOPIC, "orders", PatternType.MATCH), AccessControlEntryFilter.ANY)).values().get());
        call("delete ACL", () -> admin.deleteAcls(Set.of(ACL.toFilter())).all().get());
    }

    // ---- AKHQ: modules/AbstractKafkaWrapper, repositories/* ----

    private void akhq() throws Exception {
        read("describe cluster", () -> {
            DescribeClusterResult cluster = admin.describeCluster();
            return List.of(cluster.clusterId().get().length(), cluster.nodes().get(), cluster.controller().get().id() > 0);
        });
        call("create topic", () -> admin.createTopics(Set.of(new NewTopic("orders", 2, (short) 1)
                .configs(Map.of("cleanup.policy", "delete")))).all().get());
        call("create topic with too many replicas", () ->
                admin.createTopics(Set.of(new NewTopic("wide", 2, (short) 3))).all().get());
        call("send message", () -> send(Map.of()));
        read("topics", () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get());
        read("describe topics", () -> describeAll(List.of("orders")));
        read("describe topic that does not exist", () -> describeAll(List.of("nope")));
        call("increase partitions", () ->
                admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(3))).all().get());
        Map<String, Object> properties = Map.of("max.poll.records", 25000, "isolation.level", "read_committed",
                "enable.auto.commit", "false", "default.api.timeout.ms", 15000);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(properties)) {
            read("first offsets by time", () -> consumer.offsetsForTimes(Map.of(FIRST, 0L)));
            read("end offsets", () -> consumer.endOffsets(List.of(FIRST, new TopicPartition("orders", 1))));
            read("read", () -> {
                consumer.assign(List.of(FIRST));
                consumer.seek(FIRST, 0);
                List<String> found = new ArrayList<>();
                while (found.size() < 3) {
                    found.addAll(records(poll(consumer).records(FIRST)));
                }
                return found;
            });
        }
        read("log directories", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values());
        read("topic configs", () -> admin.describeConfigs(List.of(ORDERS)).all().get());
        read("broker configs", () -> admin.describeConfigs(List.of(BROKER)).all().get());
        call("replace topic configs", () -> replaceConfigs(ORDERS, new ConfigEntry("retention.ms", "7200000")));
        call("replace broker configs", () -> replaceConfigs(BROKER, new ConfigEntry("log.cleaner.threads", "2")));
        read("configs after the changes", () -> List.of(dynamic(ORDERS), dynamic(BROKER)));
        akhqGroups(properties);
        read("ACLs", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        read("ACLs of a principal", () -> admin.describeAcls(new AclBindingFilter(new ResourcePatternFilter(
                ResourceType.ANY, null, PatternType.ANY), new AccessControlEntryFilter("User:alice", null,
                AclOperation.ANY, AclPermissionType.ANY))).values().get());
        call("delete records", () -> admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(1)))
                .lowWatermarks().get(FIRST).get().lowWatermark());
        call("delete topic", () -> admin.deleteTopics(Set.of("orders")).all().get());
    }

    private void akhqGroups(Map<String, Object> properties) throws Exception {
        Map<String, Object> ofGroup = new HashMap<>(properties);
        ofGroup.put("group.id", "readers");
        call("update offsets", () -> {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(ofGroup)) {
                consumer.commitSync(Map.of(FIRST, new OffsetAndMetadata(2)));
                return "committed";
            }
        });
        try (KafkaConsumer<byte[], byte[]> member = member("active", properties)) {
            read("groups", () -> admin.listConsumerGroups().all().get());
            read("describe groups", () -> admin.describeConsumerGroups(List.of("active", "readers")).all().get());
            read("update offsets of an active group", () -> {
                Map<String, Object> ofActive = new HashMap<>(properties);
                ofActive.put("group.id", "active");
                try (KafkaConsumer<byte[], byte[]> consumer = consumer(ofActive)) {
                    consumer.commitSync(Map.of(FIRST, new OffsetAndMetadata(2)));
                    return "committed";
                }
            });
        }
        read("offsets of a group", () ->
                admin.listConsumerGroupOffsets("readers").partitionsToOffsetAndMetadata().get());
        call("delete offsets", () -> admin.deleteConsumerGroupOffsets("readers",
                Set.of(FIRST, new TopicPartition("orders", 1))).all().get());
        call("delete group", () -> admin.deleteConsumerGroups(Set.of("readers")).all().get());
    }

    @SuppressWarnings("deprecation")
    private Object describeAll(List<String> topics) throws Exception {
        return admin.describeTopics(topics).all().get();
    }

    @SuppressWarnings("deprecation")
    private Object replaceConfigs(ConfigResource resource, ConfigEntry entry) throws Exception {
        return admin.alterConfigs(Map.of(resource, new Config(List.of(entry)))).all().get();
    }

    @SuppressWarnings("deprecation")
    private static org.apache.kafka.clients.consumer.ConsumerRecords<byte[], byte[]> poll(
            KafkaConsumer<byte[], byte[]> consumer) {
        return consumer.poll(10_000);
    }

    // ---- what both do ----

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> properties) {
        Map<String, Object> all = new HashMap<>(properties);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** A member that has read all of the topic and committed. */
    private KafkaConsumer<byte[], byte[]> member(String group, Map<String, Object> properties) {
        Map<String, Object> all = new HashMap<>(properties);
        all.putAll(Map.of("group.id", group, "client.id", "reader", "auto.offset.reset", "earliest"));
        all.put("enable.auto.commit", "false");
        KafkaConsumer<byte[], byte[]> consumer = consumer(all);
        consumer.subscribe(List.of("orders"));
        for (int found = 0; found < 3; ) {
            found += consumer.poll(POLL).count();
        }
        consumer.commitSync();
        return consumer;
    }

    private Object send(Map<String, Object> properties) throws Exception {
        Map<String, Object> all = new HashMap<>(properties);
        all.put("bootstrap.servers", bootstrap);
        List<String> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String value : List.of("a", "b", "c")) {
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>("orders", 0,
                        value.equals("b") ? null : value.getBytes(), value.equals("c") ? null : value.getBytes());
                record.headers().add("h", value.getBytes());
                RecordMetadata metadata = producer.send(record).get();
                sent.add(metadata.topic() + "-" + metadata.partition() + "@" + metadata.offset());
            }
        }
        return sent;
    }

    private Object dynamic(ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().stream()
                .filter(each -> each.source().name().startsWith("DYNAMIC")).collect(Collectors.toList());
    }

    private Object cluster(DescribeClusterResult result) throws Exception {
        return List.of(result.controller().get(), result.clusterId().get().length(), result.nodes().get(),
                String.valueOf(text(result.authorizedOperations().get())));
    }

    /** Make a call that changes the cluster. */
    private void call(String name, Callable<Object> work) throws Exception {
        read(name, work);
        settle();
    }

    private void read(String name, Callable<Object> work) throws Exception {
        String outcome;
        try {
            outcome = text(work.call());
        } catch (ExecutionException | CompletionException error) {
            outcome = error.getCause().getClass().getSimpleName();
        } catch (RuntimeException error) {
            outcome = error.getClass().getSimpleName();
        }
        System.out.println(index + "\t" + name + "\t" + outcome.replace('\n', ' ').replace('\t', ' '));
    }

    /** Wait until the broker has applied its controller's decisions; Apache Kafka answers before that. */
    private void settle() throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "settle"));
        for (int i = 0; i < 2; i++) {
            probe += 1;
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
                    List.of(new ClientQuotaAlteration.Op("consumer_byte_rate", probe))))).all().get();
            ClientQuotaFilter filter = ClientQuotaFilter.contains(List.of(
                    ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, "settle")));
            while (true) {
                Map<String, Double> seen = admin.describeClientQuotas(filter).entities().get().get(entity);
                if (seen != null && seen.get("consumer_byte_rate") == probe) {
                    break;
                }
            }
        }
    }

    private static List<String> records(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(each -> each.offset() + " " + bytes(each.key()) + "=" + bytes(each.value()) + " "
                + each.timestampType() + " " + each.leaderEpoch() + " "
                + text(List.of(each.headers().toArray()))).collect(Collectors.toList());
    }

    private static String bytes(byte[] data) {
        return data == null ? "null" : new String(data, StandardCharsets.UTF_8);
    }

    /** Return the public content of an object, in a stable order, without values that differ between any two clusters. */
    private static String text(Object value) {
        if (value instanceof Map) {
            TreeMap<String, String> sorted = new TreeMap<>();
            ((Map<?, ?>) value).forEach((key, each) -> sorted.put(text(key), text(each)));
            return sorted.toString();
        } else if (value instanceof Collection) {
            return ((Collection<?>) value).stream().map(UserInterfaceCalls::text).sorted().collect(Collectors.toList())
                    .toString();
        } else if (value instanceof Optional) {
            return ((Optional<?>) value).map(UserInterfaceCalls::text).orElse("none");
        } else if (value instanceof Node) {
            return "node " + ((Node) value).id() + " rack " + ((Node) value).rack();
        } else if (value instanceof Header) {
            return ((Header) value).key() + "=" + bytes(((Header) value).value());
        } else if (value instanceof TopicListing) {
            return ((TopicListing) value).name() + " internal=" + ((TopicListing) value).isInternal();
        } else if (value instanceof TopicDescription) {
            TopicDescription topic = (TopicDescription) value;
            return topic.name() + " internal=" + topic.isInternal() + " " + text(topic.partitions()) + " "
                    + text(topic.authorizedOperations());
        } else if (value instanceof TopicPartitionInfo) {
            TopicPartitionInfo partition = (TopicPartitionInfo) value;
            return partition.partition() + " leader " + text(partition.leader()) + " " + text(partition.replicas()) + " "
                    + text(partition.isr());
        } else if (value instanceof PartitionInfo) {
            PartitionInfo partition = (PartitionInfo) value;
            return partition.topic() + "-" + partition.partition() + " leader " + text(partition.leader());
        } else if (value instanceof Config) {
            return text(((Config) value).entries().stream().filter(each -> !each.name().startsWith("ottla.")
                    && !UNKNOWN_TO_KAFKA.contains(each.name())).collect(Collectors.toList()));
        } else if (value instanceof ConfigEntry) {
            return entry((ConfigEntry) value);
        } else if (value instanceof LogDirDescription) {
            LogDirDescription directory = (LogDirDescription) value;
            return "error " + directory.error() + " partitions " + text(directory.replicaInfos().keySet().stream()
                    .filter(each -> each.topic().equals("orders")).collect(Collectors.toList())) + " total "
                    + directory.totalBytes().isPresent() + " usable " + directory.usableBytes().isPresent();
        } else if (value instanceof ListOffsetsResult.ListOffsetsResultInfo) {
            ListOffsetsResult.ListOffsetsResultInfo found = (ListOffsetsResult.ListOffsetsResultInfo) value;
            return found.offset() + " epoch " + found.leaderEpoch() + " timed " + (found.timestamp() > 0);
        } else if (value instanceof OffsetAndTimestamp) {
            return ((OffsetAndTimestamp) value).offset() + " epoch " + ((OffsetAndTimestamp) value).leaderEpoch();
        }
        return groupText(value);
    }

    private static String groupText(Object value) {
        if (value instanceof ConsumerGroupListing) {
            ConsumerGroupListing group = (ConsumerGroupListing) value;
            return group.groupId() + " simple=" + group.isSimpleConsumerGroup() + " " + text(group.state());
        } else if (value instanceof ConsumerGroupDescription) {
            ConsumerGroupDescription group = (ConsumerGroupDescription) value;
            return group.groupId() + " " + group.state() + " " + group.partitionAssignor() + " simple="
                    + group.isSimpleConsumerGroup() + " " + text(group.coordinator()) + " " + text(group.members()) + " "
                    + text(group.authorizedOperations());
        } else if (value instanceof MemberDescription) {
            MemberDescription member = (MemberDescription) value;
            return member.clientId() + " " + text(member.groupInstanceId()) + " " + member.host() + " "
                    + text(member.assignment().topicPartitions());
        } else if (value instanceof ProducerState) {
            ProducerState state = (ProducerState) value;
            return "epoch " + state.producerEpoch() + " sequence " + state.lastSequence() + " coordinator "
                    + state.coordinatorEpoch() + " open " + state.currentTransactionStartOffset();
        } else if (value instanceof QuorumInfo) {
            QuorumInfo quorum = (QuorumInfo) value;
            return "leader " + quorum.leaderId() + " voters " + quorum.voters().stream()
                    .map(QuorumInfo.ReplicaState::replicaId).collect(Collectors.toList()) + " observers "
                    + quorum.observers().size();
        }
        return String.valueOf(value);
    }

    private static String entry(ConfigEntry entry) {
        boolean local = Set.of("listeners", "advertised.listeners", "log.dirs", "log.dir", "controller.quorum.voters",
                "authorizer.class.name").contains(entry.name());
        return entry.name() + "=" + (local ? "LOCAL" : entry.value() + " " + entry.source()) + " " + entry.type() + " "
                + (entry.isSensitive() ? "sensitive " : "") + (entry.isReadOnly() ? "read-only " : "")
                + (entry.documentation() == null || entry.documentation().isEmpty() ? "" : "documented ")
                + entry.synonyms().stream().map(each -> each.source() + ":" + each.name() + "="
                        + (local ? "LOCAL" : each.value())).collect(Collectors.toList());
    }
}
