"""The URLs of the site: pages, admin site, API and metrics."""

from django.contrib.auth import views as auth
from django.urls import include, path, re_path
from django.views.decorators.http import require_safe

from rollouts.admin.site import site
from rollouts.api import problems
from rollouts.api.paths import CLUSTER, WORKLOAD
from rollouts.live import stream
from rollouts.web import (
    account,
    audit,
    clusters,
    events,
    help_page,
    manifests,
    metrics,
    nodes,
    overrides,
    page_layout,
    revisions,
    sign_in,
    tokens,
    workload,
    workloads,
)
from rollouts.web.commands.urls import command_urlpatterns

urlpatterns = [
    path("", workloads.page, name="home"),
    path("live/stream/", require_safe(page_layout.viewer_required(stream.stream)), name="live-stream"),
    path("live/workloads/", workloads.list_fragment, name="live-workloads"),
    path("live/clusters/", page_layout.cluster_notices_fragment, name="live-clusters"),
    path("live/clusters/page/", clusters.state_fragment, name="live-clusters-page"),
    path("clusters/", clusters.page, name="page-clusters"),
    path("nodes/", nodes.page, name="page-nodes"),
    path("live/nodes/", nodes.list_fragment, name="live-nodes"),
    path("overrides/", overrides.page, name="page-overrides"),
    path("live/overrides/", overrides.list_fragment, name="live-overrides"),
    path("audit/", audit.page, name="page-audit"),
    path("live/audit/", audit.list_fragment, name="live-audit"),
    path("tokens/", tokens.page, name="page-tokens"),
    path("tokens/<number:number>/revoke/", tokens.revoke, name="page-token-revoke"),
    path("account/", account.page, name="page-account"),
    path("account/password/", account.change_password, name="page-account-password"),
    path("account/end/", account.end_sessions, name="page-account-end"),
    path("help/", help_page.page, name="page-help"),
    path(WORKLOAD, workload.page, name="workload"),
    path(f"{WORKLOAD}parts/<slug:part>/", workload.part_fragment, name="workload-part"),
    path(f"{WORKLOAD}pod/<object:pod>/", workload.pod, name="workload-pod"),
    path(f"{WORKLOAD}timeline/", workload.timeline, name="workload-timeline"),
    path(f"{WORKLOAD}events/", events.page, name="workload-events"),
    path(f"{WORKLOAD}events/card/", events.card_fragment, name="workload-events-card"),
    path(f"{WORKLOAD}manifest/", manifests.page, name="workload-manifest"),
    path(f"{WORKLOAD}revisions/<number:number>/", revisions.page, name="workload-revision"),
    *command_urlpatterns(WORKLOAD, CLUSTER),
    path("sign-in/", sign_in.SignInView.as_view(), name="login"),
    path("sign-in/sso/", sign_in.sso_start, name="sso"),
    path("sign-in/sso/done/", sign_in.sso_callback, name="sso-done"),
    path("sign-out/", auth.LogoutView.as_view(), name="logout"),
    path("admin/", site.urls),
    path("api/v1/", include("rollouts.api.urls")),
    re_path("^api/", problems.unknown_path),
    path("metrics", metrics.page, name="metrics"),
]
