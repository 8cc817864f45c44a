"""Where each part of the site hangs."""

from django.contrib.auth import views as auth
from django.urls import include, path, re_path

from rollouts.admin.site import site
from rollouts.api import problems
from rollouts.api.paths import WORKLOAD
from rollouts.web import metrics, pages, sign_in, workload

urlpatterns = [
    path("", pages.home, name="home"),
    path(WORKLOAD, workload.page, name="workload"),
    path(f"{WORKLOAD}parts/<slug:part>/", workload.part, name="workload-part"),
    path(f"{WORKLOAD}pod/<object:pod>/", workload.pod, name="workload-pod"),
    path("sign-in/", sign_in.SignInView.as_view(), name="login"),
    path("sign-in/sso/", sign_in.sso_set_out, name="sso"),
    path("sign-in/sso/done/", sign_in.sso_come_back, name="sso-done"),
    path("sign-out/", auth.LogoutView.as_view(), name="logout"),
    path("admin/", site.urls),
    path("api/v1/", include("rollouts.api.urls")),
    re_path("^api/", problems.unknown_path),
    path("metrics", metrics.page, name="metrics"),
]
