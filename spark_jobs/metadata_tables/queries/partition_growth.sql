-- How many topics and partitions there were after each hour with changes.
WITH moves AS (
  SELECT date_trunc('hour', time) AS hour, 0 AS partitions,
         CASE operation WHEN 'created' THEN 1 WHEN 'removed' THEN -1 ELSE 0 END AS topics
  FROM changes WHERE entity_type = 'topic'
  UNION ALL
  SELECT date_trunc('hour', time),
         CASE operation WHEN 'created' THEN 1 WHEN 'removed' THEN -1 ELSE 0 END, 0
  FROM changes WHERE entity_type = 'partition'
), hours AS (
  SELECT hour, sum(topics) AS topics, sum(partitions) AS partitions FROM moves GROUP BY hour
)
SELECT hour, sum(topics) OVER (ORDER BY hour) AS topics, sum(partitions) OVER (ORDER BY hour) AS partitions
FROM hours
ORDER BY hour
