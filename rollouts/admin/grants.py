"""Where people may command: grants of namespaces, on the pages of users and groups and in a list of their own."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Field
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.admin import TabularInline
from unfold.forms import PaginationInlineFormSet
from unfold.widgets import UnfoldAdminSelectWidget

from rollouts.admin.filters import RelatedFilter, ValueFilter
from rollouts.admin.recording import RecordedTable
from rollouts.admin.rendering import show_time
from rollouts.admin.site import site
from rollouts.cluster import Misconfigured
from rollouts.connections import cluster_names
from rollouts.models import NamespaceGrant

Shown = str | SafeString


def list_clusters() -> tuple[str, ...]:
    """Return the names of the configured clusters; none while the settings are wrong."""
    try:
        return cluster_names()
    except Misconfigured:
        return ()


def make_cluster_field() -> forms.ChoiceField:
    """Return a field to choose a configured cluster by, or any."""
    choices = [("", "any cluster"), *((name, name) for name in list_clusters())]
    return forms.ChoiceField(choices=choices, required=False, widget=UnfoldAdminSelectWidget())


class _GrantForms(PaginationInlineFormSet):
    """The grants of one person or group, each once."""

    def clean(self) -> None:
        """Say so when one is written twice; the database would refuse it without a word."""
        super().clean()
        seen: set[tuple[str, str]] = set()
        for form in self.forms:
            data = getattr(form, "cleaned_data", {})
            if not data or data.get("DELETE"):
                continue
            place = (data.get("cluster", ""), data.get("namespace", ""))
            if place in seen:
                form.add_error("namespace", "This namespace is granted twice; remove one of the two.")
            seen.add(place)


class _Grants(TabularInline):
    model = NamespaceGrant
    formset = _GrantForms
    extra = 0
    fields = ("cluster", "namespace", "author", "created")
    readonly_fields = ("author", "created")
    verbose_name_plural = "Namespaces granted (an empty one means any)"

    def formfield_for_dbfield(self, db_field: "Field[Any, Any]", request: HttpRequest, **kwargs: Any) -> Any:
        """Offer the clusters that are configured."""
        if db_field.name == "cluster":
            return make_cluster_field()
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """As for the page that it is on."""
        return True

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """As for the page that it is on."""
        return True

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """As for the page that it is on."""
        return True

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """As for the page that it is on."""
        return True


class GrantsOfUser(_Grants):
    """Where somebody may command."""

    fk_name = "user"


class GrantsOfGroup(_Grants):
    """Where everybody in a group may command."""

    fk_name = "group"


@admin.register(NamespaceGrant, site=site)
class NamespaceGrantAdmin(RecordedTable):
    """All grants."""

    list_display = ("whom", "cluster_name", "namespace_name", "author", "since")
    list_select_related = ("user", "group", "author")
    list_filter = (
        *(("cluster", ValueFilter), ("namespace", ValueFilter)),
        *(("user", RelatedFilter), ("group", RelatedFilter)),
    )
    search_fields = ("user__username", "group__name", "namespace")
    search_help_text = "Part of the name of a user, a group or a namespace"
    fields = ("user", "group", "cluster", "namespace")
    autocomplete_fields = ("user",)

    def describe_row(self, row: NamespaceGrant) -> dict[str, Any]:
        """Return what an entry tells of a grant."""
        return {
            "user": row.user.get_username() if row.user else None,
            "group": row.group.name if row.group else None,
            "cluster": row.cluster,
            "namespace": row.namespace,
        }

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Note who granted it."""
        if not change:
            obj.author = request.user
        super().save_model(request, obj, form, change)

    def formfield_for_dbfield(self, db_field: "Field[Any, Any]", request: HttpRequest, **kwargs: Any) -> Any:
        """Offer the clusters that are configured."""
        if db_field.name == "cluster":
            return make_cluster_field()
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    @admin.display(description="Granted to")
    def whom(self, row: NamespaceGrant) -> Shown:
        """Who may."""
        return f"user {row.user}" if row.user else f"group {row.group}"

    @admin.display(description="Cluster", ordering="cluster")
    def cluster_name(self, row: NamespaceGrant) -> str:
        """In which cluster."""
        return row.cluster or "any"

    @admin.display(description="Namespace", ordering="namespace")
    def namespace_name(self, row: NamespaceGrant) -> str:
        """In which namespace."""
        return row.namespace or "any"

    @admin.display(description="Since", ordering="created")
    def since(self, row: NamespaceGrant) -> Shown:
        """Since when."""
        return show_time(row.created)
