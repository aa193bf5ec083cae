"""Parts of `ottla consumer-groups`: descriptions, reports, and offset resets."""
