"""A change simulated to its end before it is made."""
