"""The update strategy of a workload by HTTP: what is in force and where it comes from, and edits of what is written."""

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.api.commands import CommandView, describe_command
from rollouts.api.paths import WORKLOAD
from rollouts.api.query_params import reject_parameters
from rollouts.api.rendering import versioned_response
from rollouts.api.response_serializers import response_serializer
from rollouts.api.schema import CONDITIONAL, NOT_MODIFIED
from rollouts.api.serializers import ChangedAnswer, StrategyBody
from rollouts.selectors.strategy_detail import StrategyDetail, strategy_detail


class StrategyView(CommandView):
    """The strategy of a workload."""

    commands = (Command.EDIT_STRATEGY,)

    @extend_schema(
        operation_id="workloads_strategy",
        summary="The strategy in force",
        tags=["workloads"],
        parameters=CONDITIONAL,
        responses={200: response_serializer(StrategyDetail), **NOT_MODIFIED},
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Tell the strategy that counts, with the source of each part and the numbers it comes to."""
        reject_parameters(request)
        detail = strategy_detail(WorkloadRef(cluster, namespace, name))
        return versioned_response(request, detail, detail.version)

    @describe_command(StrategyBody, ChangedAnswer, operation_id="workload_edit_strategy", summary="Edit the strategy")
    def patch(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Change parts of what the workload itself says; an edit of the strategy never starts a rollout.

        What is left out stays, null takes something out. An override may still count instead: see GET.
        """
        return self.run_change("strategy", WorkloadRef(cluster, namespace, name), self.read_body(StrategyBody))


urlpatterns = [path(f"{WORKLOAD}strategy/", StrategyView.as_view(), name="workload-strategy")]
