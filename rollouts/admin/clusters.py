"""Clusters: the state of each connection, and a connection test that names what is wrong."""

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from rollouts.accounts import permissions
from rollouts.accounts.commands import Command
from rollouts.accounts.errors import CommandRefused
from rollouts.admin.filters import ValueFilter
from rollouts.admin.model_admin import ReadOnlyAdmin
from rollouts.admin.rendering import show_cluster_state, show_mono, show_time
from rollouts.admin.site import site
from rollouts.models import Cluster
from rollouts.services.audit import Source, caller_of
from rollouts.services.connection_test import cluster_test

Shown = str | SafeString


@admin.register(Cluster, site=site)
class ClusterAdmin(ReadOnlyAdmin):
    """Clusters that were ever mirrored."""

    list_display = ("name", "state", "version", "source", "heard", "trouble")
    list_filter = (("trouble_code", ValueFilter),)
    search_fields = ("name", "url")
    ordering = ("name",)
    fields = (
        "name",
        "state",
        "trouble",
        "since",
        "other_operator",
        "source",
        "url",
        "version",
        "identity_text",
        "complete",
        "heard",
    )
    change_form_template = "admin/cluster_page.html"

    def get_urls(self) -> list[URLPattern]:
        """Add the connection test."""
        view = self.admin_site.admin_view(self.test_view)
        return [path("<int:pk>/test/", view, name="rollouts_cluster_test"), *super().get_urls()]

    def test_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Run the connection test, and show its results."""
        row = get_object_or_404(Cluster, pk=pk)
        back = reverse("admin:rollouts_cluster_change", args=[pk])
        if request.method != "POST":
            return HttpResponseRedirect(back)
        try:
            found = cluster_test(caller_of(request, Source.ADMIN), row.name)
        except CommandRefused as refusal:
            messages.error(request, refusal.sentence)
            return HttpResponseRedirect(back)
        title = f"Connection to {row.name}"
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": title,
            "found": found,
            "row": row,
        }
        return TemplateResponse(request, "admin/cluster_test.html", context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the cluster; show the test only to accounts with the permission."""
        may = permissions.find_refusal(request.user, Command.TEST_CLUSTER) is None
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), "may_test": may})

    @admin.display(description="State", ordering="trouble_code")
    def state(self, row: Cluster) -> Shown:
        """Show the state of the connection."""
        return show_cluster_state(row)

    @admin.display(description="Last contact", ordering="heard_at")
    def heard(self, row: Cluster) -> Shown:
        """Show when the watcher last received anything from it."""
        return show_time(row.heard_at)

    @admin.display(description="Problem since")
    def since(self, row: Cluster) -> Shown:
        """Show when the present problem began."""
        return show_time(row.trouble_since)

    @admin.display(description="Identity")
    def identity_text(self, row: Cluster) -> Shown:
        """Show the uid that distinguishes it from another cluster of this name."""
        return show_mono(row.identity)
