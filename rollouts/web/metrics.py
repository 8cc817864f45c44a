"""/metrics for Prometheus: the counters of all processes and the current gauges.

There are two ways in. An account that may view workloads uses the site. Prometheus sends METRICS_TOKEN; like a kubelet
it calls the address of a pod, so the middleware answers before the site checks the host name or HTTPS.
"""

from collections.abc import Callable, Iterator

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from redis import RedisError

from rollouts.accounts import permissions
from rollouts.runtime.connections import redis_client
from rollouts.selectors.gauges import Gauge, read_gauges
from rollouts.telemetry import metrics

GetResponse = Callable[[HttpRequest], HttpResponse]
PATH = "/metrics"


def metrics_middleware(get_response: GetResponse) -> GetResponse:
    """Answer requests with METRICS_TOKEN, and pass on all others."""

    def middleware(request: HttpRequest) -> HttpResponse:
        is_read = request.path_info == PATH and request.method in ("GET", "HEAD")
        if is_read and is_metrics_token(request.headers.get("Authorization", "")):
            return _render_metrics(request)
        return get_response(request)

    return middleware


@login_not_required
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Answer accounts that may view workloads; a program gets plain text instead of a redirect to the sign-in page."""
    if permissions.may_view(request.user):
        return _render_metrics(request)
    if request.user.is_authenticated:
        refusal = f"{permissions.NO_ROLE_SENTENCE}\n"
        return HttpResponse(refusal, status=403, content_type="text/plain; charset=utf-8")
    refusal = "Sign in, or send the header Authorization: Bearer <METRICS_TOKEN>.\n"
    return HttpResponse(
        refusal, status=401, content_type="text/plain; charset=utf-8", headers={"WWW-Authenticate": "Bearer"}
    )


def is_metrics_token(authorization: str) -> bool:
    """Return whether this Authorization header carries METRICS_TOKEN."""
    token = settings.ENVIRONMENT.metrics_token
    scheme, _, shown = authorization.partition(" ")
    return token is not None and scheme.lower() == "bearer" and constant_time_compare(shown.strip(), token)


def _render_metrics(request: HttpRequest) -> HttpResponse:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector())
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry), content_type=content_type, headers={"Cache-Control": "no-store"})


class _Collector(Collector):
    """Collects the gauges for prometheus_client."""

    def collect(self) -> Iterator[Metric]:
        for gauge in read_gauges():
            yield _gauge_family(gauge)
        try:
            redis = redis_client()
            metrics.flush(redis)
            yield from _histogram_families(list(metrics.read(redis)))
        except RedisError:
            return  # grove_ui_part_up reports it


def _gauge_family(gauge: Gauge) -> GaugeMetricFamily:
    family = GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels)
    for labels, value in gauge.values.items():
        family.add_metric(labels, value)
    return family


def _histogram_families(found: list[tuple[metrics.Histogram, list[metrics.Spread]]]) -> Iterator[HistogramMetricFamily]:
    for histogram, spreads in found:
        family = HistogramMetricFamily(histogram.name, histogram.help, labels=histogram.labels)
        for spread in spreads:
            family.add_metric(spread.labels, buckets=list(spread.buckets), sum_value=spread.sum)
        yield family
