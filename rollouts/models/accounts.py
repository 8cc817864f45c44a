"""Who may sign in."""

from django.contrib.auth.models import AbstractUser


class User(AbstractUser):
    """An account. A model of our own from the first migration on, since it cannot be swapped in later."""
