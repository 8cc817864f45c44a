"""What the processes run on: connections, the database, the local Redis, the supervisor."""
