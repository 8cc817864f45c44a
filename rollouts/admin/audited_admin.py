"""Changes of accounts in the admin site, recorded in the audit with the values before and after.

For tables without a service, because Django's own forms do all the work. The change and its audit entry are one
transaction, which Django opens around every submitted form. The invariant: no entry contains a password or its hash; an
entry only says that a password was set.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from rollouts.accounts import permissions
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.admin.model_admin import BaseAdmin
from rollouts.models import NamespaceGrant
from rollouts.services.audit import Result, Source, audited_command, caller_of, record

_VALUE_BEFORE: Final = "_recorded_before"


class AuditedAdmin(BaseAdmin):
    """A table that needs a permission, `change_account` by default; every change is recorded."""

    actions = None  # no deletion from the list: the page of a row shows what is deleted
    command: ClassVar[Command] = Command.CHANGE_ACCOUNT

    def describe_row(self, row: Any) -> dict[str, Any]:
        """Return the values of a row for the audit."""
        raise NotImplementedError

    def ref_of(self, row: Any) -> WorkloadRef:
        """Return the target of an audit entry."""
        return WorkloadRef(name=str(row))

    def _may(self, request: HttpRequest) -> bool:
        return permissions.find_refusal(request.user, self.command) is None

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the account has the permission."""
        return self._may(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the account has the permission."""
        return self._may(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return whether the account has the permission."""
        return self._may(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the account has the permission."""
        return self._may(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the account has the permission."""
        return self._may(request)

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> Any:
        """Show or save a row, and record refusals."""
        with self.audit_refusals(request, object_id):
            return super().changeform_view(request, object_id, form_url, extra_context)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """Delete a row, and record refusals."""
        with self.audit_refusals(request, object_id):
            return super().delete_view(request, object_id, extra_context)

    @contextmanager
    def audit_refusals(self, request: HttpRequest, object_id: str | None) -> Iterator[None]:
        """Record a refused change; opening a page is not recorded."""
        try:
            yield
        except PermissionDenied:
            if request.method == "POST":
                row = self.get_object(request, unquote(object_id)) if object_id else None
                detail = f"The account may not change the {self.opts.verbose_name} {row or ''}".strip() + "."
                ref = self.ref_of(row) if row else WorkloadRef()
                record(caller_of(request, Source.ADMIN), self.command, ref, Result.REFUSED, detail=detail)
            raise

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Keep the values before the change; those after it need the related rows."""
        setattr(request, _VALUE_BEFORE, self.describe_row(self._read(obj.pk)) if change else None)
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Sequence[Any], change: bool) -> None:
        """Save groups, permissions and grants, and record the change."""
        row = form.instance
        with audited_command(caller_of(request, Source.ADMIN), self.command, self.ref_of(row)) as audited:
            super().save_related(request, form, formsets, change)
            before, after = getattr(request, _VALUE_BEFORE, None), self.describe_row(self._read(row.pk))
            if before != after:
                audited.done(before=before, after=after, detail=self._detail("Changed" if change else "Created", row))

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Set the author of new grants."""
        for row in formset.save(commit=False):
            if isinstance(row, NamespaceGrant) and row._state.adding:  # noqa: SLF001 (public in all but name)
                row.author_id = request.user.pk
            row.save()
        for row in formset.deleted_objects:
            row.delete()
        formset.save_m2m()

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete a row, and record that."""
        with audited_command(caller_of(request, Source.ADMIN), self.command, self.ref_of(obj)) as audited:
            before = self.describe_row(obj)
            super().delete_model(request, obj)
            audited.done(before=before, detail=self._detail("Deleted", obj))

    def _read(self, pk: Any) -> Any:
        return self.model._default_manager.get(pk=pk)  # noqa: SLF001 (public in all but name)

    def _detail(self, verb: str, row: Model) -> str:
        return f"{verb} the {self.opts.verbose_name} {row}."


def describe_grants(rows: QuerySet[NamespaceGrant]) -> list[str]:
    """Return grants as text for the audit."""
    return sorted(str(row) for row in rows)
