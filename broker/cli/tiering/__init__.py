"""What `ottla remote` does: buckets and clusters brought together, and told of."""
