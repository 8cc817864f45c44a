"""/clusters/: the configured clusters and their nodes."""

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from rollouts.api.paths import CLUSTER
from rollouts.api.query_params import QueryParams, reject_parameters, render_page
from rollouts.api.rendering import cacheable_response
from rollouts.api.response_serializers import page_serializer, response_serializer
from rollouts.api.schema import PAGING, query_parameter
from rollouts.selectors.clusters import ClusterDetail, NodeDetail, cluster_detail, cluster_list, node_list


class ClustersView(APIView):
    """All clusters."""

    @extend_schema(
        operation_id="clusters_list",
        summary="The clusters",
        tags=["clusters"],
        responses=page_serializer(response_serializer(ClusterDetail), "ClusterPage"),
    )
    def get(self, request: Request) -> HttpResponse:
        """List the configured clusters: connection state, workloads by state, nodes and pods. There is one page."""
        reject_parameters(request)
        clusters = cluster_list()
        return cacheable_response({"count": len(clusters), "next": None, "previous": None, "results": clusters})


class ClusterView(APIView):
    """One cluster."""

    @extend_schema(
        operation_id="clusters_detail",
        summary="One cluster",
        tags=["clusters"],
        responses=response_serializer(ClusterDetail),
    )
    def get(self, request: Request, cluster: str) -> HttpResponse:
        """Return the connection state of a cluster, its workloads by state, its nodes and pods."""
        reject_parameters(request)
        return cacheable_response(cluster_detail(cluster))


class NodesView(APIView):
    """The nodes of a cluster."""

    @extend_schema(
        operation_id="nodes_list",
        summary="The nodes of a cluster",
        tags=["clusters"],
        parameters=[query_parameter("search", "Words that the name must contain."), *PAGING],
        responses=page_serializer(response_serializer(NodeDetail), "NodePage"),
    )
    def get(self, request: Request, cluster: str) -> HttpResponse:
        """List nodes by name, each with its pods by workload and template."""
        query = QueryParams(request)
        search, window = query.text("search"), query.window()
        query.raise_if_invalid()
        return cacheable_response(render_page(request, node_list(cluster, search, window)))


urlpatterns = [
    path("clusters/", ClustersView.as_view(), name="api-clusters"),
    path(CLUSTER, ClusterView.as_view(), name="api-cluster"),
    path(f"{CLUSTER}nodes/", NodesView.as_view(), name="api-nodes"),
]
