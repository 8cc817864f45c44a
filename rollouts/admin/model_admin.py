"""Tables that can be looked at and not be changed: mirror, history and audit are.

The number of queries of a list does not depend on its length: what a row shows of another table comes with it, and what
only the page of a row shows is left in the database.
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
    # Columns that are large and shown on the page of a row only.
    left_out_of_lists: ClassVar[tuple[str, ...]] = ()
    # What other pages of ours link to this list by, besides its filters.
    linked_lookups: ClassVar[tuple[str, ...]] = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Leave out of lists what they do not show."""
        rows: QuerySet[Any] = super().get_queryset(request)
        match = request.resolver_match
        is_list = match is not None and (match.url_name or "").endswith("_changelist")
        return rows.defer(*self.left_out_of_lists) if is_list else rows

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow what the filters of the list ask, and nothing else.

        Django allows every column, also those that are masked or not shown: whoever may ask whether a secret begins
        with an a knows it soon.
        """
        if lookup in self.linked_lookups:
            return True
        filters = (
            one[0] if isinstance(one, tuple) else getattr(one, "parameter_name", "")
            for one in self.get_list_filter(request)
        )
        allowed = {*filter(None, [*filters, self.date_hierarchy])}
        is_filter = any(lookup == name or lookup.startswith(f"{name}__") for name in allowed)
        # Django's own look keeps a filter by a person from reaching into that person's row.
        return is_filter and super().lookup_allowed(lookup, value, request)

    # The audit is the record of what was changed; a second one would only tell less.
    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]
        """Leave it to the audit."""

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]
        """Leave it to the audit."""

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:  # type: ignore[override]
        """Leave it to the audit."""


class ReadOnlyAdmin(BaseAdmin):
    """A table that nobody changes here."""

    actions: Any = None

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may see workloads."""
        return permissions.may_view(request.user)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whoever may see workloads."""
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False
