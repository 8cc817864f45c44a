"""Where each part of the API hangs, below /api/v1/."""

from django.urls import URLPattern, URLResolver

from rollouts.api import accounts, commands

urlpatterns: list[URLPattern | URLResolver] = [
    *accounts.urlpatterns,
    *commands.urlpatterns,
]
