"""What people command, on the two clusters."""
