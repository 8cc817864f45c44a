"""The annotations in which a PodClique or a scaling group records its template's values (`docs/semantics.md` 8).

`desired` writes them, the mirror reads them, and `layout` computes once for each workload what they should be. The
invariant: what an object took from a template that has changed can be told from what others put on it, so the first is
removed and the second stays.
"""

from collections.abc import Mapping
from typing import Final

from rollouts.engine.model import names
from rollouts.engine.model.hashing import compute_settings_hash
from rollouts.engine.model.workload import CliqueTemplate, GroupTemplate

# The replicas of the template that were last put in force. In between, the live replicas belong to the person or
# autoscaler that scales the object.
TEMPLATE_REPLICAS: Final = "grove.io/template-replicas"

# The labels and annotations that the object has from its template, as `labels.tier,annotations.example.com/owner`.
# `autoScalingConfig=` of a PodClique and `settings=` of a scaling group are followed by a hash, which shows a change
# that is not in the template hash.
TEMPLATE_KEYS: Final = "grove.io/template-keys"
_AUTO_SCALING_KEY: Final = "autoScalingConfig="
_SETTINGS_KEY: Final = "settings="

# A template cannot set these on a PodClique or a scaling group: they say where the object belongs.
RESERVED_LABELS: Final = frozenset(
    {
        *(names.MANAGED_BY, names.PART_OF, names.NAME, names.COMPONENT, names.CLIQUE, names.GANG, names.BASE_GANG),
        *(names.REPLICA_INDEX, names.GROUP, names.GROUP_REPLICA_INDEX, names.POD_INDEX, names.TEMPLATE_HASH),
    }
)
RESERVED_ANNOTATIONS: Final = frozenset({TEMPLATE_REPLICAS, TEMPLATE_KEYS})


def select_template_labels(template: CliqueTemplate) -> dict[str, str]:
    """Return the labels that a PodClique has from its template."""
    return {name: value for name, value in template.labels.items() if name not in RESERVED_LABELS}


def select_template_annotations(template: CliqueTemplate | GroupTemplate) -> dict[str, str]:
    """Return the annotations that a PodClique or a scaling group has from its template."""
    return {name: value for name, value in template.annotations.items() if name not in RESERVED_ANNOTATIONS}


def compute_clique_keys(template: CliqueTemplate) -> tuple[str, ...]:
    """Return what a PodClique records of its template; nothing if it has no labels, annotations or settings from it."""
    return (
        *_render_keys("labels", select_template_labels(template)),
        *_render_keys("annotations", select_template_annotations(template)),
        *compute_scaling_keys(template),
    )


def compute_scaling_keys(template: CliqueTemplate) -> tuple[str, ...]:
    """Return what a PodClique records of the autoscaling settings of its template; nothing if there are none."""
    if template.auto_scaling is None:
        return ()
    return (f"{_AUTO_SCALING_KEY}{compute_settings_hash(template.auto_scaling)}",)


def find_scaling_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a PodClique has recorded of autoscaling settings."""
    return tuple([key for key in keys if key.startswith(_AUTO_SCALING_KEY)]) if keys else ()


def compute_group_keys(template: GroupTemplate) -> tuple[str, ...]:
    """Return what a scaling group records of its template; nothing if it has no annotations from it."""
    annotations = select_template_annotations(template)
    if not annotations:
        return ()
    return (*_render_keys("annotations", annotations), f"{_SETTINGS_KEY}{compute_settings_hash(annotations)}")


def _render_keys(field: str, entries: Mapping[str, str]) -> list[str]:
    return [f"{field}.{name}" for name in sorted(entries)]
