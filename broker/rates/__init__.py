"""Recent rates by Kafka's arithmetic, tables of sensors, and limits on new connections."""
