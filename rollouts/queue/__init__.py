"""The workqueue on Redis, and the Celery messages that bring its keys to the workers."""
