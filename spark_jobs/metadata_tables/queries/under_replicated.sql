-- Partitions that lack replicas now, with how long they have.
SELECT topic, partition, leader, array_except(replicas, isr) AS missing, time AS since
FROM partitions_now
WHERE size(isr) < size(replicas)
ORDER BY topic, partition
