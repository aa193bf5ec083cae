"""APIs of configurations and client quotas."""
