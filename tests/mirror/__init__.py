"""The mirror: its rows, how they move, and how they are read."""
