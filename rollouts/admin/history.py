"""The history tables, read-only: revisions, rollouts and timelines. Literal values of variables are masked."""

from django.contrib import admin
from django.utils.safestring import SafeString

from rollouts.admin.filters import ValueFilter
from rollouts.admin.model_admin import ReadOnlyAdmin
from rollouts.admin.rendering import show_document, show_link, show_list_link, show_mono, show_pill, show_time
from rollouts.admin.site import site
from rollouts.manifests.masking import mask_manifest
from rollouts.models import Revision, Rollout, Step

Shown = str | SafeString

_NAMESPACE_FILTERS = (("cluster", ValueFilter), ("namespace", ValueFilter))


@admin.register(Revision, site=site)
class RevisionAdmin(ReadOnlyAdmin):
    """Revisions: recorded templates of workloads."""

    left_out_of_lists = ("template",)
    list_display = ("name", "number", "namespace", "cluster", "hash", "age")
    list_filter = _NAMESPACE_FILTERS
    search_fields = ("name", "namespace", "generation_hash")
    search_help_text = "Part of a name or namespace, or a hash"
    ordering = ("cluster", "namespace", "name", "-number")
    fields = ("cluster", "namespace", "name", "workload_uid", "number", "hash", "age", "masked_template")

    @admin.display(description="Generation hash", ordering="generation_hash")
    def hash(self, row: Revision) -> Shown:
        """Show the generation hash."""
        return show_mono(row.generation_hash)

    @admin.display(description="First seen", ordering="created")
    def age(self, row: Revision) -> Shown:
        """Show when it was recorded."""
        return show_time(row.created)

    @admin.display(description="Template (secrets, commands and variables are hidden)")
    def masked_template(self, row: Revision) -> Shown:
        """Show the masked template."""
        masked = mask_manifest({"spec": {"template": row.template}})
        return show_document(masked["spec"]["template"])


@admin.register(Rollout, site=site)
class RolloutAdmin(ReadOnlyAdmin):
    """Rollouts: changes of workloads from one template to another."""

    list_display = ("name", "namespace", "cluster", "strategy", "change", "came_out", "began", "took", "timeline")
    list_filter = (*_NAMESPACE_FILTERS, ("strategy", ValueFilter), ("outcome", ValueFilter))
    search_fields = ("name", "namespace", "to_hash", "from_hash")
    search_help_text = "Part of a name or namespace, or a hash"
    date_hierarchy = "started"
    fields = (
        *("cluster", "namespace", "name", "workload_uid", "strategy", "change", "came_out", "began", "took"),
        *("moving", "waiting", "timeline"),
    )

    @admin.display(description="From → to")
    def change(self, row: Rollout) -> Shown:
        """Show the hashes before and after."""
        return show_mono(f"{row.from_hash or 'new'} → {row.to_hash}")

    @admin.display(description="Outcome", ordering="outcome")
    def came_out(self, row: Rollout) -> Shown:
        """Show the outcome."""
        if not row.outcome:
            return show_pill("progressing", "info")
        return show_pill(row.outcome, "good" if row.outcome == Rollout.Outcome.COMPLETE else "warn")

    @admin.display(description="Began", ordering="started")
    def began(self, row: Rollout) -> Shown:
        """Show when it began."""
        return show_time(row.started)

    @admin.display(description="Duration")
    def took(self, row: Rollout) -> str:
        """Return the time from its beginning to its end."""
        return f"{(row.ended - row.started).total_seconds():,.0f} s" if row.ended else "–"

    @admin.display(description="Progressed for")
    def moving(self, row: Rollout) -> str:
        """Return how long it progressed."""
        return f"{row.progressing_seconds:,.0f} s"

    @admin.display(description="Waited for")
    def waiting(self, row: Rollout) -> str:
        """Return how long it was stuck."""
        return f"{row.waiting_seconds:,.0f} s"

    @admin.display(description="Timeline")
    def timeline(self, row: Rollout) -> SafeString:
        """Link to its timeline."""
        return show_list_link(Step, "Steps", rollout__id__exact=row.pk)


@admin.register(Step, site=site)
class StepAdmin(ReadOnlyAdmin):
    """Entries of the timelines of rollouts."""

    list_display = ("moment", "reason", "component", "text", "count", "of_rollout")
    list_select_related = ("rollout",)
    list_filter = (("reason", ValueFilter),)
    search_fields = ("text", "component", "rollout__name")
    search_help_text = "Part of a sentence, a component or the name of a workload"
    ordering = ("-at", "-id")
    date_hierarchy = "at"
    linked_lookups = ("rollout__id__exact",)
    fields = ("of_rollout", "moment", "reason", "component", "text", "count")

    @admin.display(description="When", ordering="at")
    def moment(self, row: Step) -> Shown:
        """Show when it happened."""
        return show_time(row.at)

    @admin.display(description="Rollout")
    def of_rollout(self, row: Step) -> Shown:
        """Link to the rollout."""
        return show_link(row.rollout)
