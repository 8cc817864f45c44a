"""Changes of accounts made in the admin site, put on record with what was before and after.

For tables that no service stands behind, because Django's own forms are all there is to them. The change and its entry
are one transaction, which Django opens around every form that is sent. The invariant: no entry holds a password, not
even its hash; it says that one was set.
"""

from collections.abc import Sequence
from typing import Any, Final

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from rollouts import access
from rollouts.admin.tables import Table
from rollouts.audit import Via, caller_of, deed
from rollouts.commands import Command, Place
from rollouts.models import NamespaceGrant

_BEFORE: Final = "_recorded_before"


class RecordedTable(Table):
    """A table of accounts: whoever may change accounts may change it, and every change is on record."""

    actions = None  # what is deleted is looked at first

    def describe_row(self, row: Any) -> dict[str, Any]:
        """Return what an entry tells of a row."""
        raise NotImplementedError

    def _may(self, request: HttpRequest) -> bool:
        return access.find_refusal(request.user, Command.CHANGE_ACCOUNT) is None

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whether somebody may change accounts."""
        return self._may(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether somebody may change accounts."""
        return self._may(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether somebody may change accounts."""
        return self._may(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether somebody may change accounts."""
        return self._may(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether somebody may change accounts."""
        return self._may(request)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Note what was before; what comes after is only known with the related rows."""
        setattr(request, _BEFORE, self.describe_row(self._read(obj.pk)) if change else None)
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Sequence[Any], change: bool) -> None:
        """Save groups, permissions and grants, and put the change on record."""
        row = form.instance
        with deed(caller_of(request, Via.ADMIN), Command.CHANGE_ACCOUNT, Place(name=str(row))) as it:
            super().save_related(request, form, formsets, change)
            before, after = getattr(request, _BEFORE, None), self.describe_row(self._read(row.pk))
            if before != after:
                it.done(before=before, after=after, detail=self._detail("Changed" if change else "Created", row))

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Note who granted a namespace."""
        for row in formset.save(commit=False):
            if isinstance(row, NamespaceGrant) and row._state.adding:  # noqa: SLF001 (public in all but name)
                row.author_id = request.user.pk
            row.save()
        for row in formset.deleted_objects:
            row.delete()
        formset.save_m2m()

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete a row and put it on record."""
        with deed(caller_of(request, Via.ADMIN), Command.CHANGE_ACCOUNT, Place(name=str(obj))) as it:
            before = self.describe_row(obj)
            super().delete_model(request, obj)
            it.done(before=before, detail=self._detail("Deleted", obj))

    def _read(self, pk: Any) -> Any:
        return self.model._default_manager.get(pk=pk)  # noqa: SLF001 (public in all but name)

    def _detail(self, verb: str, row: Model) -> str:
        return f"{verb} the {self.opts.verbose_name} {row}."


def describe_grants(rows: QuerySet[NamespaceGrant]) -> list[str]:
    """Return grants as entries tell them."""
    return sorted(str(row) for row in rows)
