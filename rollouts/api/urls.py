"""Where each part of the API hangs, below /api/v1/."""

from django.urls import URLPattern, URLResolver

from rollouts.api import accounts, clusters, commands, history, schema, workloads

urlpatterns: list[URLPattern | URLResolver] = [
    *schema.urlpatterns,
    *clusters.urlpatterns,
    *history.urlpatterns,
    *workloads.urlpatterns,
    *accounts.urlpatterns,
    *commands.urlpatterns,
]
