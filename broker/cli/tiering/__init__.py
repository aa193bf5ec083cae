"""Parts of `ottla remote`: access to the bucket and the cluster, audits, recovery, and their reports."""
