-- When each broker was fenced, and for how long; the latest first.
WITH versions AS (
  SELECT broker_id, time, fenced OR removed AS absent, from_offset,
         lag(fenced OR removed, 1, true) OVER (PARTITION BY broker_id ORDER BY from_offset) AS absent_before
  FROM brokers
), edges AS (
  SELECT broker_id, absent, time AS since,
         lead(time) OVER (PARTITION BY broker_id ORDER BY from_offset) AS until
  FROM versions
  WHERE absent <> absent_before
)
SELECT broker_id, since, until, until - since AS duration FROM edges WHERE absent ORDER BY since DESC, broker_id
