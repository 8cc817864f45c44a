"""The settings of the product, with passwords that are hashed at once: it takes a fifth of a second else."""

from grove_ui.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
