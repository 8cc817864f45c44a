"""What users read of manifests, and what they send."""
