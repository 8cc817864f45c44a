"""Masking: values that may be secret are hidden, and restored."""
