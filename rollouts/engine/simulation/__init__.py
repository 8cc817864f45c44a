"""A change run to its end in a simulated cluster, before anybody makes it."""
