"""The sidebar: sections in the order in which a platform team needs them, filtered by permission."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from rollouts.admin.site import site

# Title, then its entries: model, label, icon.
_SECTIONS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Operations",
        (
            ("strategyoverride", "Strategy overrides", "tune"),
            ("auditentry", "Audit", "history_edu"),
        ),
    ),
    (
        "Accounts",
        (
            ("user", "Users", "person"),
            ("group", "Groups and roles", "group"),
            ("namespacegrant", "Namespace grants", "key"),
            ("namespacepodsecurity", "Pod Security levels", "shield"),
            ("apitoken", "API tokens", "token"),
        ),
    ),
    (
        "History",
        (
            ("rollout", "Rollouts", "cached"),
            ("step", "Timelines", "timeline"),
            ("revision", "Revisions", "difference"),
        ),
    ),
    (
        "Mirror",
        (
            ("cluster", "Clusters", "hub"),
            ("workload", "Workloads", "deployed_code"),
            ("scalinggroup", "Scaling groups", "stacks"),
            ("clique", "Cliques", "category"),
            ("pod", "Pods", "view_module"),
            ("gang", "Gangs", "groups"),
            ("service", "Services", "lan"),
            ("node", "Nodes", "dns"),
        ),
    ),
)


def sidebar_sections(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the entries of the sidebar that the account may open."""
    open_to = {
        model._meta.model_name: f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"  # noqa: SLF001
        for model, table in site._registry.items()  # noqa: SLF001 (the site's own)
        if table.has_view_or_change_permission(request)
    }
    home = {"title": "Overview", "icon": "home", "link": reverse("admin:index")}
    return [
        {"title": "", "items": [home]},
        *(
            {
                "title": title,
                "items": [
                    {"title": name, "icon": icon, "link": reverse(open_to[model])}
                    for model, name, icon in entries
                    if model in open_to
                ],
            }
            for title, entries in _SECTIONS
        ),
    ]
