"""/me/: your account and its permissions. /tokens/: your API tokens."""

from typing import Any, Final

from django.conf import settings
from django.db.models import QuerySet
from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from rollouts.accounts import permissions as permissions_module
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.token_scopes import MAX_NAMESPACES, SCOPE_COMMANDS, RequestedScope
from rollouts.accounts.tokens import TokenState, expiry_of, state_of, tokens_with_owners
from rollouts.api.permissions import IsSignedIn
from rollouts.api.serializers import StrictBooleanField, StrictCharField, StrictSerializer
from rollouts.models import ApiToken
from rollouts.services.audit import Source, caller_of, require_one_of
from rollouts.services.tokens import DEFAULT_TOKEN_DAYS, default_expiry, token_create, token_revoke

_NAMESPACES: Final = "The token can change workloads only in these namespaces. Null: wherever its owner can."
_COMMANDS: Final = (
    "The token can give only these commands. Null: every command of its owner. apply_privileged is not a command by "
    "itself: it lets the others add what the Pod Security level of a namespace forbids."
)


def _commands_field(**options: Any) -> serializers.ListField:
    choice = serializers.ChoiceField([command.value for command in SCOPE_COMMANDS])
    return serializers.ListField(child=choice, allow_null=True, help_text=_COMMANDS, **options)


class GrantAnswer(serializers.Serializer[Any]):
    """A cluster and namespace in which an account may change workloads."""

    cluster = serializers.CharField(help_text="Empty: any.", allow_blank=True)
    namespace = serializers.CharField(help_text="Empty: any.", allow_blank=True)


class MeAnswer(serializers.Serializer[Any]):
    """Your account."""

    username = serializers.CharField()
    roles = serializers.ListField(child=serializers.CharField(), help_text="Your groups.")
    permissions = serializers.ListField(
        child=serializers.ChoiceField([command.value for command in Command]),
        help_text="The commands you may give, in namespaces for which you have a grant.",
    )
    may_see = serializers.BooleanField(help_text="Whether you may view workloads.")
    needs_grants = serializers.BooleanField(help_text="Whether commands also need a grant for the namespace.")
    grants = GrantAnswer(many=True)
    # The framework has an attribute of this name too; only serializers that write need it.
    read_only = serializers.BooleanField(  # type: ignore[assignment]
        help_text=f"Whether READ_ONLY is set: commands of users are refused. {permissions_module.CONTROLLER_CONTINUES}"
    )
    observe = serializers.BooleanField(help_text="Whether OBSERVE is set: Grove UI writes nothing to any cluster.")
    token = serializers.CharField(
        allow_null=True, help_text="The name of the token of this request. Null: you use a session."
    )
    token_read_only = serializers.BooleanField(help_text="Whether that token can only read.")
    token_namespaces = GrantAnswer(many=True, allow_null=True, help_text=_NAMESPACES)
    token_commands = _commands_field()


class TokenAnswer(serializers.Serializer[Any]):
    """A token without its secret."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="The first characters of its secret.", allow_blank=True)
    read_only = serializers.BooleanField()  # type: ignore[assignment]
    namespaces = GrantAnswer(many=True, allow_null=True, help_text=_NAMESPACES)
    commands = _commands_field()
    state = serializers.ChoiceField(
        [state.value for state in TokenState],
        help_text="Only a valid token is accepted. Asleep: its owner must sign in first (OIDC_TOKEN_DAYS).",
    )
    created = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(
        allow_null=True, help_text="At most TOKEN_MAX_DAYS after its creation. Null: never."
    )
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="Accurate to a minute. Null: not used yet.")
    revoked_at = serializers.DateTimeField(allow_null=True)


class NewTokenAnswer(TokenAnswer):
    """A new token with its secret."""

    token = serializers.CharField(help_text="Send it as Authorization: Bearer …; it is shown only in this answer.")


class NamespaceBody(StrictSerializer):
    """A cluster and namespace of the scope of a token."""

    cluster = StrictCharField(required=False, default="", allow_blank=True, max_length=253, help_text="Empty: any.")
    namespace = StrictCharField(required=False, default="", allow_blank=True, max_length=63, help_text="Empty: any.")


class TokenBody(StrictSerializer):
    """A token to create."""

    name = StrictCharField(max_length=100, help_text="What the token is for.")
    expires_at = serializers.DateTimeField(
        required=False,
        allow_null=True,
        help_text=f"Null: never, if TOKEN_MAX_DAYS is off. Default: in {DEFAULT_TOKEN_DAYS} days, or earlier.",
    )
    read_only = StrictBooleanField(default=False, help_text="Whether it can only read.")  # type: ignore[assignment]
    namespaces = serializers.ListField(
        child=NamespaceBody(), required=False, allow_null=True, max_length=MAX_NAMESPACES, help_text=_NAMESPACES
    )
    commands = _commands_field(required=False, max_length=len(SCOPE_COMMANDS))


class MeView(APIView):
    """Your account."""

    permission_classes = (IsSignedIn,)

    @extend_schema(operation_id="me", summary="Get your account", tags=["accounts"], responses=MeAnswer)
    def get(self, request: Request) -> Response:
        """Return the account of the token or session, with its roles, permissions and grants."""
        return Response(MeAnswer(_render_account(request)).data)


class TokensView(APIView):
    """Your tokens."""

    permission_classes = (IsSignedIn,)

    @extend_schema(
        operation_id="tokens_list", summary="List your tokens", tags=["accounts"], responses=TokenAnswer(many=True)
    )
    def get(self, request: Request) -> Response:
        """List your tokens, the newest first, including expired and revoked ones."""
        return Response(TokenAnswer([_render_token(one) for one in _own_tokens(request)[:500]], many=True).data)

    @extend_schema(
        operation_id="tokens_create",
        summary="Create a token",
        tags=["accounts"],
        request=TokenBody,
        responses={201: NewTokenAnswer},
    )
    def post(self, request: Request) -> Response:
        """Create a token for yourself. Only this answer contains its secret.

        A token that is created with another token expires with that token at the latest, and has the same scope or a
        narrower one. A read-only token cannot create tokens.
        """
        caller = caller_of(request, Source.API)
        require_one_of(caller, [Command.CREATE_TOKEN], WorkloadRef(name=caller.name))
        wish = TokenBody(data=request.data)
        wish.is_valid(raise_exception=True)
        values = wish.validated_data
        made = token_create(
            caller,
            values["name"],
            values.get("expires_at", default_expiry()),
            requested=RequestedScope(values["read_only"], values.get("namespaces"), values.get("commands")),
            made_with=request.auth if isinstance(request.auth, ApiToken) else None,
        )
        row = tokens_with_owners().get(pk=made.token.pk)
        answer = {**TokenAnswer(_render_token(row)).data, "token": made.text}
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})


class TokenView(APIView):
    """One token."""

    permission_classes = (IsSignedIn,)

    @extend_schema(
        operation_id="tokens_revoke",
        summary="Revoke a token",
        tags=["accounts"],
        request=None,
        responses={204: OpenApiResponse(description="The token is revoked.")},
    )
    def delete(self, request: Request, number: int) -> Response:
        """Revoke a token and all tokens that were created with it.

        They stay in the list; revoking a token again does nothing.
        """
        token_revoke(caller_of(request, Source.API), number)
        return Response(status=status.HTTP_204_NO_CONTENT)


urlpatterns = [
    path("me/", MeView.as_view(), name="api-me"),
    path("tokens/", TokensView.as_view(), name="api-tokens"),
    path("tokens/<int:number>/", TokenView.as_view(), name="api-token"),
]


def _render_account(request: Request) -> dict[str, Any]:
    user, token = request.user, request.auth
    held = user.get_all_permissions()
    return {
        "username": user.get_username(),
        "roles": sorted(user.groups.values_list("name", flat=True)),
        "permissions": [command.value for command in Command if _is_permitted(command, held)],
        "may_see": permissions_module.may_view(user),
        "needs_grants": permissions_module.COMMAND_ANYWHERE not in held,
        "grants": [{"cluster": one, "namespace": other} for one, other in sorted(permissions_module.grants_of(user))],
        "read_only": settings.ENVIRONMENT.read_only,
        "observe": settings.ENVIRONMENT.observe,
        "token": token.name if isinstance(token, ApiToken) else None,
        "token_read_only": isinstance(token, ApiToken) and token.read_only,
        "token_namespaces": token.namespaces if isinstance(token, ApiToken) else None,
        "token_commands": token.commands if isinstance(token, ApiToken) else None,
    }


def _render_token(token: ApiToken) -> dict[str, Any]:
    columns = ("id", "name", "prefix", "read_only", "namespaces", "commands", "created", "last_used_at", "revoked_at")
    described = {name: getattr(token, name) for name in columns}
    return {**described, "expires_at": expiry_of(token), "state": state_of(token, timezone.now())}


def _is_permitted(command: Command, held: set[str]) -> bool:
    return command in permissions_module.SELF_COMMANDS or permissions_module.permission_of(command) in held


def _own_tokens(request: Request) -> QuerySet[ApiToken]:
    return tokens_with_owners().filter(user=request.user.pk)
