"""Users and groups. Roles are groups that this version defines: who is in them is chosen here, what they may is not.

Nobody can lock themselves out here, and only superusers touch superusers.
"""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, Permission
from django.db import transaction
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import TabularInline
from unfold.contrib.filters.admin import BooleanRadioFilter
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from rollouts.access import ANYWHERE, ROLES
from rollouts.admin.filters import RelatedFilter
from rollouts.admin.grants import GrantsOfGroup, GrantsOfUser
from rollouts.admin.recording import RecordedTable, describe_grants
from rollouts.admin.rendering import show_pill, show_time
from rollouts.admin.site import site
from rollouts.audit import Result, Via, caller_of, record
from rollouts.commands import Command, Place
from rollouts.models import OidcIdentity, User

Shown = str | SafeString

# What groups are composed of: the commands, and seeing.
_CODENAMES = (*(command.value for command in Command), ANYWHERE.partition(".")[2])


class _Identities(TabularInline):
    """By which identity providers somebody comes."""

    model = OidcIdentity
    extra = 0
    fields = readonly_fields = ("issuer", "subject", "created")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """As for the page that it is on."""
        return True

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only signing in makes one."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may change the account may cut the link."""
        return True


@admin.register(User, site=site)
class UserAdmin(DjangoUserAdmin, RecordedTable):  # type: ignore[type-arg, misc]
    """Accounts."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    inlines = (GrantsOfUser, _Identities)
    list_display = ("username", "full_name", "email", "role_names", "standing", "signed_in")
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
        ("What it may do", {"fields": ("is_active", "groups", "is_staff", "is_superuser")}),
        ("Times", {"fields": ("last_login", "date_joined")}),
    )
    readonly_fields = ("password_link", "last_login", "date_joined")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Bring the groups along."""
        return super().get_queryset(request).prefetch_related("groups")

    def describe_row(self, row: User) -> dict[str, Any]:
        """Return what an entry tells of an account."""
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
        """Show identities only to those who come by single sign-on."""
        if obj is None:
            return ()
        return self.inlines if obj.identities.exists() else (GrantsOfUser,)

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Keep people from locking themselves out, and from making themselves more than they are."""
        fields = [*super().get_readonly_fields(request, obj)]
        if obj is not None and obj == request.user:
            fields += ["is_active", "groups", "is_staff", "is_superuser"]
        elif not request.user.is_superuser:
            fields += ["is_superuser"]
        return fields

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Leave superusers to superusers."""
        return super().has_change_permission(request, obj) and _is_reach_of(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Leave superusers to superusers, and nobody deletes themselves."""
        return super().has_delete_permission(request, obj) and _is_reach_of(request, obj) and obj != request.user

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Let tokens, grants and calls go with their account: by themselves they are kept, which is not in its way."""
        shown, counts, missing, protected = super().get_deleted_objects(objs, request)
        return shown, counts, missing & {self.opts.verbose_name}, protected

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002 (Django's name)
        """Set somebody's password, and put that on record."""
        with transaction.atomic():
            response = super().user_change_password(request, id, form_url)
            if request.method == "POST" and isinstance(response, HttpResponseRedirect):
                row = User.objects.get(pk=id)
                caller, place = caller_of(request, Via.ADMIN), Place(name=row.get_username())
                record(caller, Command.CHANGE_ACCOUNT, place, Result.DONE, detail=f"Set the password of {row}.")
        return response

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer the groups as boxes to tick, and nothing else there."""
        field: Any = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "groups":
            field.widget = UnfoldAdminCheckboxSelectMultipleWidget(choices=field.choices)
            field.help_text = "Roles are what this version says; other groups are composed here."
        return field

    @admin.display(description="Password")
    def password_link(self, row: User) -> Shown:
        """Where a password is set; of the one there is, nothing is shown."""
        words = "Set another one" if row.has_usable_password() else "None; set one"
        return format_html('<a class="grove-link" href="../password/">{}</a>', words)

    @admin.display(description="Name", ordering="last_name")
    def full_name(self, row: User) -> str:
        """How they are called."""
        return row.get_full_name() or "–"

    @admin.display(description="Roles and groups")
    def role_names(self, row: User) -> str:
        """What they are here."""
        return ", ".join(sorted(group.name for group in row.groups.all())) or "–"

    @admin.display(description="Standing", ordering="is_active")
    def standing(self, row: User) -> Shown:
        """Whether they may sign in."""
        if not row.is_active:
            return show_pill("may not sign in", "warn")
        return show_pill("superuser", "info") if row.is_superuser else show_pill("active", "good")

    @admin.display(description="Signed in", ordering="last_login")
    def signed_in(self, row: User) -> Shown:
        """When they last came."""
        return show_time(row.last_login)


class _PermissionField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, obj: Any) -> str:
        return str(obj.name)


@admin.register(Group, site=site)
class GroupAdmin(RecordedTable):
    """Groups, of which the roles are three."""

    list_display = ("name", "kind", "member_count")
    search_fields = ("name",)
    inlines = (GrantsOfGroup,)
    fields = ("name", "kind", "permissions")
    readonly_fields = ("kind",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Count the members along."""
        rows: QuerySet[Any] = super().get_queryset(request).annotate(members=Count("user"))
        return rows

    def describe_row(self, row: Group) -> dict[str, Any]:
        """Return what an entry tells of a group."""
        return {
            "name": row.name,
            "permissions": sorted(row.permissions.values_list("codename", flat=True)),
            "grants": describe_grants(row.grants.all()),
        }

    def get_fields(self, request: HttpRequest, obj: Group | None = None) -> Any:
        """Of a role, show what it may as text."""
        return ("name", "kind", "may") if obj and obj.name in ROLES else ("name", "permissions")

    def get_readonly_fields(self, request: HttpRequest, obj: Group | None = None) -> Any:
        """A role is what this version says."""
        return ("name", "kind", "may") if obj and obj.name in ROLES else ()

    def has_delete_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        """A role would come back with the next migration."""
        return super().has_delete_permission(request, obj) and not (obj and obj.name in ROLES)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer what means something here, as boxes to tick."""
        rollouts = Permission.objects.filter(content_type__app_label="rollouts").order_by("codename")
        means = rollouts.filter(codename__in=_CODENAMES) | rollouts.filter(codename="view_workload")
        return _PermissionField(means, required=False, widget=UnfoldAdminCheckboxSelectMultipleWidget(), label="May")

    @admin.display(description="Kind")
    def kind(self, row: Group) -> Shown:
        """Whether it is a role."""
        return show_pill("role", "info") if row.name in ROLES else "group"

    @admin.display(description="May")
    def may(self, row: Group) -> str:
        """What its members may."""
        return ", ".join(row.permissions.order_by("codename").values_list("codename", flat=True))

    @admin.display(description="Members", ordering="members")
    def member_count(self, row: Any) -> int:
        """How many are in it."""
        return int(row.members)


def _is_reach_of(request: HttpRequest, row: User | None) -> bool:
    return row is None or not row.is_superuser or bool(request.user.is_superuser)
