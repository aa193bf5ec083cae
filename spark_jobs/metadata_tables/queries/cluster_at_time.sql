-- The topics and their configs as they were at a time.
WITH topics_then AS (
  SELECT topic_id, topic
  FROM topics
  WHERE time <= :time
  GROUP BY topic_id, topic
  HAVING NOT max_by(removed, from_offset)
), configs_then AS (
  SELECT resource_name, key, max_by(value, from_offset) AS value
  FROM configs
  WHERE resource_type = 'topic' AND time <= :time
  GROUP BY resource_name, key
  HAVING NOT max_by(removed, from_offset)
)
SELECT topic, key, value
FROM topics_then LEFT JOIN configs_then ON resource_name = topic
ORDER BY topic, key
