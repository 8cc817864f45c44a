"""The workqueue on Redis, and how Celery workers are woken for it."""
