"""Manifests that people read and send: masking, strict JSON and YAML, and the version that an edit refers to."""
