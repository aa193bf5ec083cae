-- How many partitions each broker leads now, and how many it would if all had their preferred leader.
WITH each AS (
  SELECT leader AS broker, 1 AS leads, 0 AS preferred FROM partitions_now WHERE leader >= 0
  UNION ALL
  SELECT replicas[0], 0, 1 FROM partitions_now WHERE size(replicas) > 0
  UNION ALL
  SELECT broker_id, 0, 0 FROM brokers_now
)
SELECT broker, sum(leads) AS leads, sum(preferred) AS preferred FROM each GROUP BY broker ORDER BY broker
