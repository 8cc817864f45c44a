"""Pod Security levels of namespaces that differ from the level of the installation."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Field
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminSelectWidget

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.admin.audited_admin import AuditedAdmin
from rollouts.admin.filters import ValueFilter
from rollouts.admin.rendering import show_time
from rollouts.admin.site import site
from rollouts.models import NamespacePodSecurity
from rollouts.runtime.connections import configured_cluster_names

Shown = str | SafeString


@admin.register(NamespacePodSecurity, site=site)
class NamespacePodSecurityAdmin(AuditedAdmin):
    """The levels of namespaces."""

    command = Command.CHANGE_POD_SECURITY
    list_display = ("cluster", "namespace_name", "level", "author", "since")
    list_select_related = ("author",)
    list_filter = (("cluster", ValueFilter), ("level", ValueFilter))
    search_fields = ("cluster", "namespace")
    search_help_text = "Part of the name of a cluster or a namespace"
    fields = ("cluster", "namespace", "level")

    def describe_row(self, row: NamespacePodSecurity) -> dict[str, Any]:
        """Return the values of a level for the audit."""
        return {"cluster": row.cluster, "namespace": row.namespace, "level": row.level}

    def ref_of(self, row: NamespacePodSecurity) -> WorkloadRef:
        """Return the namespace."""
        return WorkloadRef(row.cluster, row.namespace)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Set the author."""
        obj.author = request.user
        super().save_model(request, obj, form, change)

    def formfield_for_dbfield(self, db_field: "Field[Any, Any]", request: HttpRequest, **kwargs: Any) -> Any:
        """Offer the configured clusters, and explain an empty namespace."""
        if db_field.name == "cluster":
            choices = [(name, name) for name in configured_cluster_names()]
            return forms.ChoiceField(choices=choices, widget=UnfoldAdminSelectWidget())
        if db_field.name == "namespace":
            kwargs["help_text"] = "Empty: all namespaces of the cluster without a level of their own."
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    @admin.display(description="Namespace", ordering="namespace")
    def namespace_name(self, row: NamespacePodSecurity) -> str:
        """Return the namespace."""
        return row.namespace or "all others"

    @admin.display(description="Since", ordering="changed")
    def since(self, row: NamespacePodSecurity) -> Shown:
        """Show when it was last changed."""
        return show_time(row.changed)
