"""The Django project: settings, urls, Celery application, ASGI entry. No logic lives here."""

from grove_ui.celery import app as celery_app

__all__ = ["celery_app"]
