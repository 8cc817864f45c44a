"""The Django project: environment, settings, URLs, the Celery application, and the limits of the HTTP server."""

from grove_ui.celery import app as celery_app

__all__ = ["celery_app"]
