"""Namespace grants: on the pages of users and groups, and in a list of their own."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Field
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.admin import TabularInline
from unfold.forms import PaginationInlineFormSet
from unfold.widgets import UnfoldAdminSelectWidget

from rollouts.accounts.account_rights import Rights, find_missing, rights_affected_by, rights_of
from rollouts.admin.audited_admin import AuditedAdmin
from rollouts.admin.filters import RelatedFilter, ValueFilter
from rollouts.admin.rendering import show_time
from rollouts.admin.site import site
from rollouts.models import NamespaceGrant, User
from rollouts.runtime.connections import configured_cluster_names

Shown = str | SafeString


def make_cluster_field() -> forms.ChoiceField:
    """Return a choice field with the configured clusters and "any"."""
    choices = [("", "any cluster"), *((name, name) for name in configured_cluster_names())]
    return forms.ChoiceField(choices=choices, required=False, widget=UnfoldAdminSelectWidget())


class _GrantForms(PaginationInlineFormSet):
    """The grants of a user or group: no duplicates, and no grant that the actor lacks."""

    actor: ClassVar[User]  # set by `_Grants.get_formset`

    def clean(self) -> None:
        """Report grants that the actor lacks, and duplicates, which the database would refuse without a sentence."""
        super().clean()
        for form in self.forms:
            data = getattr(form, "cleaned_data", {})
            if form.has_changed() and data and (sentence := find_missing(self.actor, _rights_of_form(data))):
                form.add_error("namespace", sentence)
        seen: set[tuple[str, str]] = set()
        for form in self.forms:
            data = getattr(form, "cleaned_data", {})
            if not data or data.get("DELETE"):
                continue
            place = (data.get("cluster", ""), data.get("namespace", ""))
            if place in seen:
                form.add_error("namespace", "This namespace is listed twice; remove one of the two rows.")
            seen.add(place)


class _Grants(TabularInline):
    model = NamespaceGrant
    formset = _GrantForms
    extra = 0
    fields = ("cluster", "namespace", "author", "created")
    readonly_fields = ("author", "created")
    verbose_name_plural = "Namespace grants (empty means any)"

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        """Give the forms the account that makes the change."""
        formset: Any = super().get_formset(request, obj, **kwargs)
        formset.actor = request.user
        return formset

    def formfield_for_dbfield(self, db_field: "Field[Any, Any]", request: HttpRequest, **kwargs: Any) -> Any:
        """Offer the configured clusters."""
        if db_field.name == "cluster":
            return make_cluster_field()
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow it: the page of the user or group checks the permission."""
        return True

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow it: the page of the user or group checks the permission."""
        return True

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow it: the page of the user or group checks the permission."""
        return True

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow it: the page of the user or group checks the permission."""
        return True


class GrantsOfUser(_Grants):
    """The grants of a user."""

    fk_name = "user"


class GrantsOfGroup(_Grants):
    """The grants of a group."""

    fk_name = "group"


class _GrantForm(forms.ModelForm):  # type: ignore[type-arg]
    """A grant in the list of all grants."""

    actor: ClassVar[User]  # set by `NamespaceGrantAdmin.get_form`

    def clean(self) -> dict[str, Any]:
        """Refuse a grant that the actor lacks, and a grant to an account with more permissions."""
        data: dict[str, Any] = super().clean() or {}
        whom = [rights_of(user)] if (user := data.get("user")) else []
        whom += [rights_affected_by(group)] if (group := data.get("group")) else []
        if sentence := find_missing(self.actor, _rights_of_form(data), *whom):
            raise ValidationError(sentence)
        return data


def _rights_of_form(data: Mapping[str, Any]) -> Rights:
    """Return the grant of a form as rights."""
    return Rights(grants=frozenset({(data.get("cluster") or "", data.get("namespace") or "")}))


@admin.register(NamespaceGrant, site=site)
class NamespaceGrantAdmin(AuditedAdmin):
    """All grants."""

    list_display = ("grantee", "cluster_name", "namespace_name", "author", "since")
    list_select_related = ("user", "group", "author")
    list_filter = (
        *(("cluster", ValueFilter), ("namespace", ValueFilter)),
        *(("user", RelatedFilter), ("group", RelatedFilter)),
    )
    search_fields = ("user__username", "group__name", "namespace")
    search_help_text = "Part of the name of a user, a group or a namespace"
    form = _GrantForm
    fields = ("user", "group", "cluster", "namespace")
    autocomplete_fields = ("user",)

    def describe_row(self, row: NamespaceGrant) -> dict[str, Any]:
        """Return the values of a grant for the audit."""
        return {
            "user": row.user.get_username() if row.user else None,
            "group": row.group.name if row.group else None,
            "cluster": row.cluster,
            "namespace": row.namespace,
        }

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Give the form the account that makes the change."""
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.actor = request.user
        return form

    def has_change_permission(self, request: HttpRequest, obj: NamespaceGrant | None = None) -> bool:
        """Refuse changes of the grants of an account with more permissions."""
        return super().has_change_permission(request, obj) and _may_change_grant(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: NamespaceGrant | None = None) -> bool:
        """Refuse changes of the grants of an account with more permissions."""
        return super().has_delete_permission(request, obj) and _may_change_grant(request, obj)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Set the author of a new grant."""
        if not change:
            obj.author = request.user
        super().save_model(request, obj, form, change)

    def formfield_for_dbfield(self, db_field: "Field[Any, Any]", request: HttpRequest, **kwargs: Any) -> Any:
        """Offer the configured clusters."""
        if db_field.name == "cluster":
            return make_cluster_field()
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    @admin.display(description="Granted to")
    def grantee(self, row: NamespaceGrant) -> Shown:
        """Return the user or group."""
        return f"user {row.user}" if row.user else f"group {row.group}"

    @admin.display(description="Cluster", ordering="cluster")
    def cluster_name(self, row: NamespaceGrant) -> str:
        """Return the cluster."""
        return row.cluster or "any"

    @admin.display(description="Namespace", ordering="namespace")
    def namespace_name(self, row: NamespaceGrant) -> str:
        """Return the namespace."""
        return row.namespace or "any"

    @admin.display(description="Since", ordering="created")
    def since(self, row: NamespaceGrant) -> Shown:
        """Show when it was given."""
        return show_time(row.created)


def _may_change_grant(request: HttpRequest, row: NamespaceGrant | None) -> bool:
    if row is None:
        return True
    rights = rights_of(row.user) if row.user else rights_affected_by(row.group)  # type: ignore[arg-type]  # it has one
    return not find_missing(request.user, rights)  # type: ignore[arg-type]  # signed in
