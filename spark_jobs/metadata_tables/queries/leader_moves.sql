-- Which partitions changed their leader most often.
WITH versions AS (
  SELECT topic, partition, leader, removed,
         lag(leader) OVER (PARTITION BY topic_id, partition ORDER BY from_offset) AS leader_before
  FROM partitions
)
SELECT topic, partition, count(*) AS moves, count_if(leader = -1) AS times_without_leader
FROM versions
WHERE NOT removed AND leader <> leader_before
GROUP BY topic, partition
ORDER BY moves DESC, topic, partition
LIMIT 100
