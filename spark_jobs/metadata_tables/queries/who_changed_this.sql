-- What happened to a topic, its partitions and its configs, in order. Of who asked for it Kafka's metadata says nothing.
SELECT offset, time, entity_type, entity, operation, before, after
FROM changes
WHERE topic = :topic
ORDER BY offset, entity_type, partition
