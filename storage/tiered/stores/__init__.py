"""Object stores: S3 and local directories, with retries, rate limits and credentials."""
