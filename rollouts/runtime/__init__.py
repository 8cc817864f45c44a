"""The environment of the processes: connections, the database, the local Redis, readiness, the supervisor."""
