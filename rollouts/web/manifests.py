"""The manifest of a workload as YAML, with fields in the order that Kubernetes documents them."""

from typing import Any, Final

import yaml
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.permissions import find_refusal
from rollouts.selectors.manifests import manifest_detail
from rollouts.services.audit import Source, caller_of, reader_for
from rollouts.web.page_layout import viewer_required

_TOP_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec", "status")
# The dumper in C takes a tenth of the time.
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@require_safe
@viewer_required
def page(request: HttpRequest, cluster: str, namespace: str, name: str) -> HttpResponse:
    """Show the manifest of a workload as the cluster stores it, with possible secrets hidden."""
    place = WorkloadRef(cluster, namespace, name)
    reader = reader_for(caller_of(request, Source.PAGE), place)
    found = dict(manifest_detail(place, reader).manifest)
    status = found.pop("status", None)
    context = {
        "place": place,
        "manifest": render_yaml(found),
        "status": render_yaml(status) if status else "",
        "hides_commands": not reader.sees_commands,
        "refusal": find_refusal(request.user, Command.APPLY_WORKLOAD, cluster, namespace),
    }
    return render(request, "workload/manifest.html", context)


def render_yaml(value: Any) -> str:
    """Return a value as YAML; the usual fields of a manifest come first."""
    if isinstance(value, dict):
        value = {**{name: value[name] for name in _TOP_FIELDS if name in value}, **value}
    text: str = yaml.dump(value, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=1000)
    return text
