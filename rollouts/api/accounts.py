"""/me/: who you are and what you may. /tokens/: the tokens by which your programs call."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from rollouts import access
from rollouts.api.access import SignedIn
from rollouts.api.bodies import Body, Flag, Text
from rollouts.audit import Via, caller_of
from rollouts.commands import Command
from rollouts.models import ApiToken
from rollouts.services.accounts import DAYS_TO_LIVE, token_create, token_revoke


class GrantAnswer(serializers.Serializer[Any]):
    """Where somebody may command."""

    cluster = serializers.CharField(help_text="Empty: any.", allow_blank=True)
    namespace = serializers.CharField(help_text="Empty: any.", allow_blank=True)


class MeAnswer(serializers.Serializer[Any]):
    """An account, as itself sees it."""

    username = serializers.CharField()
    roles = serializers.ListField(child=serializers.CharField(), help_text="The groups you are in.")
    permissions = serializers.ListField(
        child=serializers.ChoiceField([command.value for command in Command]),
        help_text="The commands you may give, where you have a grant.",
    )
    may_see = serializers.BooleanField(help_text="Whether you may read anything but this.")
    needs_grants = serializers.BooleanField(help_text="Whether commands also need a grant for the namespace.")
    grants = GrantAnswer(many=True)
    # A word of the framework's own, too, which only those who write into answers would miss.
    read_only = serializers.BooleanField(help_text="Whether READ_ONLY is set.")  # type: ignore[assignment]
    token = serializers.CharField(allow_null=True, help_text="The name of the token that was sent; null: a session.")
    token_read_only = serializers.BooleanField(help_text="Whether that token only reads.")


class TokenAnswer(serializers.Serializer[Any]):
    """A token without its text."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="How its text begins.", allow_blank=True)
    read_only = serializers.BooleanField()  # type: ignore[assignment]
    created = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True, help_text="Null: never.")
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="At most a minute behind. Null: not used yet.")
    revoked_at = serializers.DateTimeField(allow_null=True)


class NewTokenAnswer(TokenAnswer):
    """A token that was just made."""

    token = serializers.CharField(help_text="Send it as Authorization: Bearer …; it is shown this once.")


class TokenBody(Body):
    """What a new token is to be."""

    name = Text(max_length=100, help_text="What it is for.")
    expires_at = serializers.DateTimeField(
        required=False, allow_null=True, help_text=f"Null: never. Left out: in {DAYS_TO_LIVE} days."
    )
    read_only = Flag(default=False, help_text="Whether it only reads.")  # type: ignore[assignment]


class MeView(APIView):
    """Who you are."""

    permission_classes = (SignedIn,)

    @extend_schema(operation_id="me", summary="Who you are and what you may", tags=["accounts"], responses=MeAnswer)
    def get(self, request: Request) -> Response:
        """Tell the account that a token or session belongs to, its roles, permissions and grants."""
        return Response(MeAnswer(_describe(request)).data)


class TokensView(APIView):
    """All your tokens."""

    permission_classes = (SignedIn,)

    @extend_schema(
        operation_id="tokens_list", summary="Your tokens", tags=["accounts"], responses=TokenAnswer(many=True)
    )
    def get(self, request: Request) -> Response:
        """List your tokens, the newest first, also those that have expired or were revoked."""
        return Response(TokenAnswer(_own_tokens(request)[:500], many=True).data)

    @extend_schema(
        operation_id="tokens_create",
        summary="Make a token",
        tags=["accounts"],
        request=TokenBody,
        responses={201: NewTokenAnswer},
    )
    def post(self, request: Request) -> Response:
        """Make a token for yourself. Its text is in this answer and never to be had again.

        A token that is made with another one ends with that, at the latest; one that only reads makes none.
        """
        wish = TokenBody(data=request.data)
        wish.is_valid(raise_exception=True)
        values = wish.validated_data
        made = token_create(
            caller_of(request, Via.API),
            values["name"],
            values.get("expires_at", timezone.now() + timedelta(days=DAYS_TO_LIVE)),
            read_only=values["read_only"],
            made_with=request.auth if isinstance(request.auth, ApiToken) else None,
        )
        answer = {**TokenAnswer(made.token).data, "token": made.text}
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})


class TokenView(APIView):
    """One token."""

    permission_classes = (SignedIn,)

    @extend_schema(
        operation_id="tokens_revoke",
        summary="Revoke a token",
        tags=["accounts"],
        request=None,
        responses={204: OpenApiResponse(description="It opens nothing any more.")},
    )
    def delete(self, request: Request, number: int) -> Response:
        """End a token at once, and those that were made with it.

        They stay in the list; revoking one again does nothing.
        """
        token_revoke(caller_of(request, Via.API), number)
        return Response(status=status.HTTP_204_NO_CONTENT)


urlpatterns = [
    path("me/", MeView.as_view(), name="api-me"),
    path("tokens/", TokensView.as_view(), name="api-tokens"),
    path("tokens/<int:number>/", TokenView.as_view(), name="api-token"),
]


def _describe(request: Request) -> dict[str, Any]:
    user, token = request.user, request.auth
    held = user.get_all_permissions()
    return {
        "username": user.get_username(),
        "roles": sorted(user.groups.values_list("name", flat=True)),
        "permissions": [command.value for command in Command if _holds(command, held)],
        "may_see": access.may_see(user),
        "needs_grants": access.ANYWHERE not in held,
        "grants": [{"cluster": one, "namespace": other} for one, other in sorted(access.grants_of(user))],
        "read_only": settings.ENVIRONMENT.read_only,
        "token": token.name if isinstance(token, ApiToken) else None,
        "token_read_only": isinstance(token, ApiToken) and token.read_only,
    }


def _holds(command: Command, held: set[str]) -> bool:
    return command in access.OWN_COMMANDS or access.permission_of(command) in held


def _own_tokens(request: Request) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(user=request.user.pk)
