-- How often each broker fell out of in-sync sets and came back, by day.
WITH versions AS (
  SELECT time, isr, lag(isr) OVER (PARTITION BY topic_id, partition ORDER BY from_offset) AS isr_before
  FROM partitions
), moves AS (
  SELECT date(time) AS day, explode(array_except(isr_before, isr)) AS broker, 1 AS shrinks, 0 AS expands FROM versions
  UNION ALL
  SELECT date(time), explode(array_except(isr, isr_before)), 0, 1 FROM versions WHERE isr_before IS NOT NULL
)
SELECT day, broker, sum(shrinks) AS shrinks, sum(expands) AS expands
FROM moves
GROUP BY day, broker
ORDER BY day, broker
