"""Workloads with other people's programs: Apache Kafka's performance tools, and franz-go."""
