"""The URL patterns below /api/v1/."""

from django.urls import URLPattern, URLResolver

from rollouts.api import (
    accounts,
    audit,
    clusters,
    commands,
    feed,
    history,
    overrides,
    pods,
    schema,
    simulation,
    strategy,
    surge,
    workloads,
)

urlpatterns: list[URLPattern | URLResolver] = [
    *feed.urlpatterns,
    *schema.urlpatterns,
    *clusters.urlpatterns,
    *history.urlpatterns,
    *workloads.urlpatterns,
    *accounts.urlpatterns,
    *commands.urlpatterns,
    *pods.urlpatterns,
    *surge.urlpatterns,
    *strategy.urlpatterns,
    *overrides.urlpatterns,
    *audit.urlpatterns,
    *simulation.urlpatterns,
]
