"""Manifests that people read and send: masking, strict YAML, and the version an edit refers to."""
