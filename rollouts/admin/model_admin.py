"""Base classes of the tables; `ReadOnlyAdmin` is for mirror, history and audit.

The number of queries of a list does not depend on its length: related rows are joined, and columns that only the page
of a row shows are deferred.
"""

from typing import Any, ClassVar

from django.contrib.admin import ShowFacets
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from rollouts.accounts import permissions


class BaseAdmin(ModelAdmin):
    """A table of the admin site."""

    list_per_page = 50
    show_facets = ShowFacets.NEVER
    list_fullwidth = True
    list_filter_sheet = True
    list_filter_submit = True
    empty_value_display = "–"
    search_fields: ClassVar[tuple[str, ...]] = ()
    # Large columns that only the page of a row shows.
    left_out_of_lists: ClassVar[tuple[str, ...]] = ()
    # Lookups in links from other pages, beside the filters of the list.
    linked_lookups: ClassVar[tuple[str, ...]] = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Defer the columns that a list does not show."""
        rows: QuerySet[Any] = super().get_queryset(request)
        match = request.resolver_match
        is_list = match is not None and (match.url_name or "").endswith("_changelist")
        return rows.defer(*self.left_out_of_lists) if is_list else rows

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow the lookups of the list's filters, and no others.

        Django allows every column, including masked and hidden ones: a caller could ask whether a secret begins with
        an a, and find it letter by letter.
        """
        if lookup in self.linked_lookups:
            return True
        filters = (
            one[0] if isinstance(one, tuple) else getattr(one, "parameter_name", "")
            for one in self.get_list_filter(request)
        )
        allowed = {*filter(None, [*filters, self.date_hierarchy])}
        is_filter = any(lookup == name or lookup.startswith(f"{name}__") for name in allowed)
        # Django's own check keeps a filter by user from reaching columns of the user.
        return is_filter and super().lookup_allowed(lookup, value, request)

    # The audit records changes; Django's log would record less.
    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]
        """Do nothing: the audit records it."""

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]
        """Do nothing: the audit records it."""

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:  # type: ignore[override]
        """Do nothing: the audit records it."""


class ReadOnlyAdmin(BaseAdmin):
    """A read-only table."""

    actions: Any = None

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the account may view workloads."""
        return permissions.may_view(request.user)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the account may view workloads."""
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Refuse it."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse it."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse it."""
        return False
