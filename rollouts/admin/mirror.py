"""The mirror tables, read-only: the objects of each cluster. Literal values of variables are masked."""

from typing import Any, ClassVar

from django.contrib import admin
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import BooleanRadioFilter

from rollouts.admin.filters import RelatedFilter, ValueFilter
from rollouts.admin.model_admin import ReadOnlyAdmin
from rollouts.admin.rendering import show_document, show_labels, show_list_link, show_mono, show_pill, show_time
from rollouts.admin.site import site
from rollouts.manifests.masking import mask_manifest, mask_text
from rollouts.models import Clique, Gang, Node, Pod, ScalingGroup, Service, Workload

Shown = str | SafeString


class _MirrorAdmin(ReadOnlyAdmin):
    """A table of mirrored objects."""

    list_select_related = ("cluster",)
    ordering = ("cluster__name", "namespace", "name")
    search_fields: ClassVar[tuple[str, ...]] = ("name",)
    search_help_text = "Part of a name"

    @admin.display(description="Age", ordering="created")
    def age(self, row: Any) -> Shown:
        """Show when it was created."""
        return show_time(row.created)

    @admin.display(description="State")
    def leaves(self, row: Any) -> Shown:
        """Show whether it is terminating."""
        return show_pill("terminating", "warn") if row.leaving else "–"

    @admin.display(description="Status")
    def status_document(self, row: Any) -> Shown:
        """Show its status."""
        return show_document(row.status)

    @admin.display(description="Workload", ordering="workload")
    def of_workload(self, row: Any) -> Shown:
        """Return the workload that it belongs to."""
        return row.workload or "–"


_NAMED = ("cluster", "namespace", "name", "uid", "resource_version", "age")
_IDENTITY = (*_NAMED, "leaves")
_NAMESPACE_FILTERS = (("cluster", RelatedFilter), ("namespace", ValueFilter))


@admin.register(Workload, site=site)
class WorkloadAdmin(_MirrorAdmin):
    """PodCliqueSets."""

    left_out_of_lists = ("manifest", "in_doubt", "refused", "ready_times")
    list_display = ("name", "namespace", "cluster", "strategy", "available", "updated", "state", "hash", "age")
    list_filter = (*_NAMESPACE_FILTERS, ("strategy", ValueFilter), ("stuck_reason", ValueFilter))
    search_fields = ("name", "namespace", "generation_hash")
    search_help_text = "Part of a name or namespace, or a hash"
    fieldsets = (
        ("Workload", {"fields": (*_NAMED, "state", "label_text", "strategy", "replicas", "hash", "parts")}),
        ("Manifest", {"fields": ("masked_manifest",)}),
    )

    @admin.display(description="Available", ordering="available_replicas")
    def available(self, row: Workload) -> str:
        """Return the available replicas."""
        return f"{row.available_replicas} of {row.replicas}"

    @admin.display(description="Updated", ordering="updated_replicas")
    def updated(self, row: Workload) -> str:
        """Return the updated replicas."""
        return f"{row.updated_replicas} of {row.replicas}"

    @admin.display(description="State", ordering="progressing_reason")
    def state(self, row: Workload) -> Shown:
        """Show the reason of its state."""
        if row.leaving:
            return show_pill("terminating", "warn")
        if row.stuck_reason:
            return show_pill(row.stuck_reason, "warn")
        return show_pill(row.progressing_reason, "good" if row.progressing_reason == "Complete" else "info")

    @admin.display(description="Generation hash", ordering="generation_hash")
    def hash(self, row: Workload) -> Shown:
        """Show the generation hash."""
        return show_mono(row.generation_hash)

    @admin.display(description="Labels")
    def label_text(self, row: Workload) -> Shown:
        """Show the labels."""
        return show_labels(row.labels)

    @admin.display(description="Objects")
    def parts(self, row: Workload) -> SafeString:
        """Link to its pods."""
        return show_list_link(Pod, "Pods", cluster__id__exact=row.cluster_id, namespace=row.namespace, q=row.name)

    @admin.display(description="Manifest (secrets, commands and variables are hidden)")
    def masked_manifest(self, row: Workload) -> Shown:
        """Show the masked manifest."""
        return show_document(mask_manifest(row.manifest))


@admin.register(ScalingGroup, site=site)
class ScalingGroupAdmin(_MirrorAdmin):
    """PodCliqueScalingGroups."""

    left_out_of_lists = ("status",)
    list_display = (
        "name",
        "namespace",
        "cluster",
        "of_workload",
        "replica",
        "replicas",
        "min_available",
        "leaves",
        "age",
    )
    list_filter = (*_NAMESPACE_FILTERS, ("leaving", BooleanRadioFilter))
    search_fields = ("name", "workload")
    fields = (*_IDENTITY, "of_workload", "template", "replica", "replicas", "min_available", "status_document")


@admin.register(Clique, site=site)
class CliqueAdmin(_MirrorAdmin):
    """PodCliques."""

    left_out_of_lists = ("status",)
    list_display = (
        "name",
        "namespace",
        "cluster",
        "of_workload",
        "group",
        "replicas",
        "min_available",
        "hash",
        "leaves",
        "age",
    )
    list_filter = (*_NAMESPACE_FILTERS, ("leaving", BooleanRadioFilter))
    search_fields = ("name", "workload")
    fields = (
        *(*_IDENTITY, "of_workload", "template", "group", "group_replica", "replica", "replicas", "min_available"),
        *("hash", "status_document"),
    )

    @admin.display(description="Template hash", ordering="template_hash")
    def hash(self, row: Clique) -> Shown:
        """Show the template hash of its pods."""
        return show_mono(row.template_hash)


@admin.register(Pod, site=site)
class PodAdmin(_MirrorAdmin):
    """Pods of PodCliques."""

    list_display = ("name", "namespace", "cluster", "of_workload", "index", "state", "node", "hash", "restarts", "age")
    list_filter = (*_NAMESPACE_FILTERS, ("phase", ValueFilter), ("ready", BooleanRadioFilter), ("reason", ValueFilter))
    search_fields = ("name", "workload", "node")
    search_help_text = "Part of the name of a pod, a workload or a node"
    fields = (
        *(*_NAMED, "state", "of_workload", "clique", "index", "gang", "hash", "node", "ip", "reason", "message"),
        *("restarts", "image_list"),
    )

    @admin.display(description="State", ordering="phase")
    def state(self, row: Pod) -> Shown:
        """Show its state in a word."""
        if row.leaving:
            return show_pill("terminating", "warn")
        if row.ready:
            return show_pill("Ready", "good")
        return show_pill(row.reason or row.phase or "unknown", "warn" if row.failing else "info")

    @admin.display(description="Template hash", ordering="template_hash")
    def hash(self, row: Pod) -> Shown:
        """Show its template hash."""
        return show_mono(row.template_hash)

    @admin.display(description="Images")
    def image_list(self, row: Pod) -> Shown:
        """Show the images of its containers."""
        return show_mono(mask_text(row.images))


@admin.register(Gang, site=site)
class GangAdmin(_MirrorAdmin):
    """PodGangs."""

    left_out_of_lists = ("status", "pod_groups")
    list_display = ("name", "namespace", "cluster", "of_workload", "replica", "leaves", "age")
    list_filter = (*_NAMESPACE_FILTERS, ("leaving", BooleanRadioFilter))
    search_fields = ("name", "workload")
    fields = (*_IDENTITY, "of_workload", "replica", "groups_document", "status_document")

    @admin.display(description="Pod groups")
    def groups_document(self, row: Gang) -> Shown:
        """Show its pod groups."""
        groups = {clique: {"minReplicas": least, "pods": pods} for clique, (least, pods) in row.pod_groups.items()}
        return show_document(groups)


@admin.register(Service, site=site)
class ServiceAdmin(_MirrorAdmin):
    """Headless services."""

    list_display = ("name", "namespace", "cluster", "of_workload", "replica", "leaves", "age")
    list_filter = _NAMESPACE_FILTERS
    search_fields = ("name", "workload")
    fields = (*_IDENTITY, "of_workload", "replica", "publish_not_ready_addresses")


@admin.register(Node, site=site)
class NodeAdmin(_MirrorAdmin):
    """Nodes."""

    left_out_of_lists = ("labels",)
    list_display = ("name", "cluster", "state", "capacity", "taint_text", "age")
    list_filter = (
        ("cluster", RelatedFilter),
        ("ready", BooleanRadioFilter),
        ("unschedulable", BooleanRadioFilter),
    )
    fields = ("cluster", "name", "uid", "resource_version", "age", "state", "label_document", "taints_document", "room")

    @admin.display(description="State", ordering="ready")
    def state(self, row: Node) -> Shown:
        """Show whether it accepts pods."""
        if not row.ready:
            return show_pill("not ready", "warn")
        return show_pill("cordoned", "info") if row.unschedulable else show_pill("ready", "good")

    @admin.display(description="Allocatable")
    def capacity(self, row: Node) -> str:
        """Return its main allocatable resources."""
        amounts = {name.rpartition("/")[2]: value for name, value in row.allocatable.items()}
        return (
            ", ".join(f"{amounts[name]} {name}" for name in ("gpu", "cpu", "memory", "pods") if name in amounts) or "–"
        )

    @admin.display(description="Taints")
    def taint_text(self, row: Node) -> Shown:
        """Show its taints on one line."""
        return show_mono(", ".join(f"{taint.get('key')}:{taint.get('effect')}" for taint in row.taints))

    @admin.display(description="Labels")
    def label_document(self, row: Node) -> Shown:
        """Show its labels."""
        return show_document(row.labels)

    @admin.display(description="Taints")
    def taints_document(self, row: Node) -> Shown:
        """Show its taints."""
        return show_document(row.taints)

    @admin.display(description="Allocatable")
    def room(self, row: Node) -> Shown:
        """Show its allocatable resources."""
        return show_document(row.allocatable)
