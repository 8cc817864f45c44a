"""The update strategy of a workload by HTTP: the effective strategy with its sources, and edits of the manifest."""

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
        summary="Get the effective strategy",
        tags=["workloads"],
        parameters=CONDITIONAL,
        responses={200: response_serializer(StrategyDetail), **NOT_MODIFIED},
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Return the effective strategy, with the source of each part and the resolved numbers."""
        reject_parameters(request)
        detail = strategy_detail(WorkloadRef(cluster, namespace, name))
        return versioned_response(request, detail, detail.version)

    @describe_command(StrategyBody, ChangedAnswer, operation_id="workload_edit_strategy", summary="Edit the strategy")
    def patch(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Change parts of the strategy in the manifest. This never starts a rollout.

        A part that is missing stays unchanged; null removes it. An override may still replace the part: see GET.
        """
        return self.run_change("strategy", WorkloadRef(cluster, namespace, name), self.read_body(StrategyBody))


urlpatterns = [path(f"{WORKLOAD}strategy/", StrategyView.as_view(), name="workload-strategy")]
