-- The partitions as they were below an offset: what a snapshot that ends there holds.
SELECT topic, partition, state.leader, state.leader_epoch, state.replicas, state.isr
FROM (
  SELECT topic_id, topic, partition,
         max_by(struct(leader, leader_epoch, replicas, isr, removed), from_offset) AS state
  FROM partitions
  WHERE from_offset < :offset
  GROUP BY topic_id, topic, partition
)
WHERE NOT state.removed
ORDER BY topic, partition
