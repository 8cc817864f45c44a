"""The REST API: what it reads and commands, who may, how it is described, and that the description is true."""
