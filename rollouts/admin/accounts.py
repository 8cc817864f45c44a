"""Users and groups. Roles are groups with fixed permissions; an administrator only chooses their members.

No account can lock itself out here, and no account can change an account or a group that has, or would get, more
permissions than its own (`rollouts.accounts.account_rights`).
"""

from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, Permission
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import TabularInline
from unfold.contrib.filters.admin import BooleanRadioFilter
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from rollouts.accounts.account_rights import Rights, find_missing, rights_affected_by, rights_of, rights_of_groups
from rollouts.accounts.commands import Command
from rollouts.accounts.errors import CommandRefused
from rollouts.accounts.permissions import COMMAND_ANYWHERE, ROLES
from rollouts.admin.audited_admin import AuditedAdmin, describe_grants
from rollouts.admin.confirmation import Confirmation, confirmation_page
from rollouts.admin.filters import RelatedFilter
from rollouts.admin.grants import GrantsOfGroup, GrantsOfUser
from rollouts.admin.rendering import show_pill, show_time
from rollouts.admin.site import site
from rollouts.models import OidcIdentity, User
from rollouts.services.audit import Source, caller_of
from rollouts.services.passwords import password_set_by_admin, revoke_all_access, sessions_end

Shown = str | SafeString

# The permissions that a group can have, beside viewing workloads.
_CODENAMES = (*(command.value for command in Command), COMMAND_ANYWHERE.partition(".")[2])


class _Identities(TabularInline):
    """The identities of a single sign-on account."""

    model = OidcIdentity
    extra = 0
    fields = readonly_fields = ("issuer", "subject", "created")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow it: the page of the account checks the permission."""
        return True

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse it: only a sign-in creates an identity."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse it."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow removing the link: the page of the account checks the permission."""
        return True


class _UserForm(UserChangeForm):
    """An account; the actor can add it only to groups whose permissions the actor has."""

    actor: ClassVar[User]  # set by `UserAdmin.get_form`

    def clean_groups(self) -> Any:
        """Refuse groups with permissions that the actor lacks."""
        chosen = self.cleaned_data["groups"]
        if sentence := find_missing(self.actor, rights_of_groups(chosen)):
            raise ValidationError(sentence)
        return chosen


@admin.register(User, site=site)
class UserAdmin(DjangoUserAdmin, AuditedAdmin):  # type: ignore[type-arg, misc]
    """Accounts."""

    form = _UserForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    change_form_template = "admin/user_page.html"
    inlines = (GrantsOfUser, _Identities)
    list_display = ("username", "full_name", "email", "role_names", "account_state", "signed_in")
    list_filter = (
        ("groups", RelatedFilter),
        ("is_active", BooleanRadioFilter),
        ("is_superuser", BooleanRadioFilter),
    )
    search_fields = ("username", "first_name", "last_name", "email")
    search_help_text = "Part of a name or an address"
    filter_horizontal = ()
    fieldsets = (
        ("Account", {"fields": ("username", "password_link", "first_name", "last_name", "email")}),
        ("Permissions", {"fields": ("is_active", "groups", "is_staff", "is_superuser")}),
        ("Times", {"fields": ("last_login", "date_joined")}),
    )
    readonly_fields = ("password_link", "last_login", "date_joined")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Prefetch the groups."""
        return super().get_queryset(request).prefetch_related("groups")

    def describe_row(self, row: User) -> dict[str, Any]:
        """Return the values of an account for the audit."""
        return {
            "username": row.username,
            "name": row.get_full_name(),
            "email": row.email,
            "is_active": row.is_active,
            "is_staff": row.is_staff,
            "is_superuser": row.is_superuser,
            "groups": sorted(group.name for group in row.groups.all()),
            "grants": describe_grants(row.grants.all()),
            "identities": sorted(str(identity) for identity in row.identities.all()),
        }

    def get_inlines(self, request: HttpRequest, obj: User | None) -> Any:
        """Show identities only for single sign-on accounts."""
        if obj is None:
            return ()
        return self.inlines if obj.identities.exists() else (GrantsOfUser,)

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Keep accounts from locking themselves out and from raising their own permissions."""
        fields = [*super().get_readonly_fields(request, obj)]
        if obj is not None and obj == request.user:
            fields += ["is_active", "groups", "is_staff", "is_superuser"]
        elif not request.user.is_superuser:
            fields += ["is_superuser"]
        return fields

    def get_form(self, request: HttpRequest, obj: User | None = None, change: bool = False, **kwargs: Any) -> Any:
        """Give the form the account that makes the change."""
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        form.actor = request.user
        return form

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Refuse changes of an account with more permissions."""
        return super().has_change_permission(request, obj) and _may_change_user(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Refuse deletion of an account with more permissions, and of one's own account."""
        return super().has_delete_permission(request, obj) and _may_change_user(request, obj) and obj != request.user

    def get_urls(self) -> list[URLPattern]:
        """Add the page that confirms ending sessions and tokens."""
        view = self.admin_site.admin_view(self.end_view)
        return [path("<int:pk>/end/", view, name="rollouts_user_end"), *super().get_urls()]

    def end_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Confirm, then end all sessions and revoke all tokens of an account."""
        row = User.objects.filter(pk=pk).first()
        if row is None:
            return HttpResponseRedirect(reverse("admin:rollouts_user_changelist"))
        back = reverse("admin:rollouts_user_change", args=[pk])
        if request.method == "POST":
            try:
                count = sessions_end(caller_of(request, Source.ADMIN), row)
            except CommandRefused as refusal:
                raise PermissionDenied(refusal.sentence) from refusal
            messages.success(request, f"Ended all sessions of {row}. Revoked tokens: {count}.")
            return HttpResponseRedirect(back)
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        text = f"{row} must sign in again, and programs can no longer use the tokens of {row}."
        title = "End all sessions and revoke all tokens?"
        return confirmation_page(self, request, Confirmation(title, text, "End and revoke", back))

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Allow deleting an account with its tokens, grants and calls, which cannot be deleted by themselves."""
        shown, counts, missing, protected = super().get_deleted_objects(objs, request)
        return shown, counts, missing & {self.opts.verbose_name}, protected

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """End the sessions and revoke the tokens of an account that is deactivated, so that none is valid later.

        Activation does the same, for accounts that were deactivated in another way.
        """
        super().save_model(request, obj, form, change)
        if change and "is_active" in form.changed_data:
            sessions_end(caller_of(request, Source.ADMIN), obj)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """End the sessions of an account whose link to the identity provider is removed."""
        super().save_formset(request, form, formset, change)
        if formset.model is OidcIdentity and formset.deleted_objects:
            revoke_all_access(form.instance)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002 (Django's name)
        """Set the password of an account, end its sessions, revoke its tokens, and record that."""
        with self.audit_refusals(request, id), transaction.atomic():
            response = super().user_change_password(request, id, form_url)
            if request.method == "POST" and isinstance(response, HttpResponseRedirect):
                password_set_by_admin(caller_of(request, Source.ADMIN), User.objects.get(pk=id))
        return response

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Show the groups as checkboxes, without links to add or change groups."""
        field: Any = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "groups":
            field.widget = UnfoldAdminCheckboxSelectMultipleWidget(choices=field.choices)
            field.help_text = "Roles have fixed permissions. You can create other groups under Groups and roles."
        return field

    @admin.display(description="Password")
    def password_link(self, row: User) -> Shown:
        """Return the link to the password form; the password itself is never shown."""
        words = "Change the password" if row.has_usable_password() else "Set a password (there is none)"
        return format_html('<a class="grove-link" href="../password/">{}</a>', words)

    @admin.display(description="Name", ordering="last_name")
    def full_name(self, row: User) -> str:
        """Return the full name."""
        return row.get_full_name() or "–"

    @admin.display(description="Roles and groups")
    def role_names(self, row: User) -> str:
        """Return the names of the groups."""
        return ", ".join(sorted(group.name for group in row.groups.all())) or "–"

    @admin.display(description="State", ordering="is_active")
    def account_state(self, row: User) -> Shown:
        """Show whether the account can sign in."""
        if not row.is_active:
            return show_pill("disabled", "warn")
        return show_pill("superuser", "info") if row.is_superuser else show_pill("active", "good")

    @admin.display(description="Last sign-in", ordering="last_login")
    def signed_in(self, row: User) -> Shown:
        """Show the time of the last sign-in."""
        return show_time(row.last_login)


class _PermissionField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, obj: Any) -> str:
        return str(obj.name)


class _GroupForm(forms.ModelForm):  # type: ignore[type-arg]
    """A group; the actor can give it only permissions that the actor has."""

    actor: ClassVar[User]  # set by `GroupAdmin.get_form`

    def clean_permissions(self) -> Any:
        """Refuse permissions that the actor lacks."""
        chosen = self.cleaned_data["permissions"]
        names = frozenset(f"{one.content_type.app_label}.{one.codename}" for one in chosen)
        if sentence := find_missing(self.actor, Rights(names)):
            raise ValidationError(sentence)
        return chosen


@admin.register(Group, site=site)
class GroupAdmin(AuditedAdmin):
    """Groups; three of them are roles."""

    list_display = ("name", "kind", "member_count")
    search_fields = ("name",)
    inlines = (GrantsOfGroup,)
    form = _GroupForm
    fields = ("name", "kind", "permissions")
    readonly_fields = ("kind",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Annotate the number of members."""
        rows: QuerySet[Any] = super().get_queryset(request).annotate(members=Count("user"))
        return rows

    def describe_row(self, row: Group) -> dict[str, Any]:
        """Return the values of a group for the audit."""
        return {
            "name": row.name,
            "permissions": sorted(row.permissions.values_list("codename", flat=True)),
            "grants": describe_grants(row.grants.all()),
        }

    def get_fields(self, request: HttpRequest, obj: Group | None = None) -> Any:
        """Show the permissions of a role as text."""
        return ("name", "kind", "may") if obj and obj.name in ROLES else ("name", "permissions")

    def get_readonly_fields(self, request: HttpRequest, obj: Group | None = None) -> Any:
        """Make all fields of a role read-only."""
        return ("name", "kind", "may") if obj and obj.name in ROLES else ()

    def get_form(self, request: HttpRequest, obj: Group | None = None, change: bool = False, **kwargs: Any) -> Any:
        """Give the form the account that makes the change."""
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.actor = request.user
        return form

    def has_change_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        """Refuse changes of a group that has more permissions, or a member with more permissions."""
        return super().has_change_permission(request, obj) and _may_change_group(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        """Refuse deletion as for a change, and of roles, which the next migration would create again."""
        may = super().has_delete_permission(request, obj) and not (obj and obj.name in ROLES)
        return may and _may_change_group(request, obj)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Show the permissions that Grove UI uses as checkboxes."""
        rollouts = Permission.objects.filter(content_type__app_label="rollouts").order_by("codename")
        means = rollouts.filter(codename__in=_CODENAMES) | rollouts.filter(codename="view_workload")
        return _PermissionField(
            means, required=False, widget=UnfoldAdminCheckboxSelectMultipleWidget(), label="Permissions"
        )

    @admin.display(description="Kind")
    def kind(self, row: Group) -> Shown:
        """Show whether it is a role."""
        return show_pill("role", "info") if row.name in ROLES else "group"

    @admin.display(description="Permissions")
    def may(self, row: Group) -> str:
        """Return the permissions of its members."""
        return ", ".join(row.permissions.order_by("codename").values_list("codename", flat=True))

    @admin.display(description="Members", ordering="members")
    def member_count(self, row: Any) -> int:
        """Return the number of members."""
        return int(row.members)


def _may_change_user(request: HttpRequest, row: User | None) -> bool:
    return row is None or not find_missing(request.user, rights_of(row))  # type: ignore[arg-type]  # signed in


def _may_change_group(request: HttpRequest, row: Group | None) -> bool:
    return row is None or not find_missing(request.user, rights_affected_by(row))  # type: ignore[arg-type]  # as above
