"""/clusters/: the clusters that are looked after, and their nodes."""

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from rollouts.api.paths import CLUSTER
from rollouts.api.query_params import Query, no_parameters, render_page
from rollouts.api.rendering import answer
from rollouts.api.response_serializers import page_of, shape_of
from rollouts.api.schema import PAGING, parameter
from rollouts.selectors.clusters import ClusterDetail, NodeDetail, cluster_detail, cluster_list, node_list


class ClustersView(APIView):
    """All clusters."""

    @extend_schema(
        operation_id="clusters_list",
        summary="The clusters",
        tags=["clusters"],
        responses=page_of(shape_of(ClusterDetail), "ClusterPage"),
    )
    def get(self, request: Request) -> HttpResponse:
        """List the configured clusters, with how we stand with each and what it holds. They fit on one page."""
        no_parameters(request)
        clusters = cluster_list()
        return answer({"count": len(clusters), "next": None, "previous": None, "results": clusters})


class ClusterView(APIView):
    """One cluster."""

    @extend_schema(
        operation_id="clusters_detail", summary="One cluster", tags=["clusters"], responses=shape_of(ClusterDetail)
    )
    def get(self, request: Request, cluster: str) -> HttpResponse:
        """Tell how we stand with a cluster and what it holds."""
        no_parameters(request)
        return answer(cluster_detail(cluster))


class NodesView(APIView):
    """The nodes of a cluster."""

    @extend_schema(
        operation_id="nodes_list",
        summary="The nodes of a cluster",
        tags=["clusters"],
        parameters=[parameter("search", "Words that the name contains."), *PAGING],
        responses=page_of(shape_of(NodeDetail), "NodePage"),
    )
    def get(self, request: Request, cluster: str) -> HttpResponse:
        """List nodes by name, each with the pods on it by workload and template."""
        query = Query(request)
        search, window = query.text("search"), query.window()
        query.done()
        return answer(render_page(request, node_list(cluster, search, window)))


urlpatterns = [
    path("clusters/", ClustersView.as_view(), name="api-clusters"),
    path(CLUSTER, ClusterView.as_view(), name="api-cluster"),
    path(f"{CLUSTER}nodes/", NodesView.as_view(), name="api-nodes"),
]
