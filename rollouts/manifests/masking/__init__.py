"""Masking: hides values in manifests that may be secrets, and restores them when an edited manifest is sent back.

Before it: manifests and templates as they are stored. After it: pages, the API, diffs and the audit, none of which
sees a hidden value. Masking is a heuristic over names (`secret_names`) and forms (`secret_patterns`).

Readers who may apply a manifest to the workload see marks like `‹hidden 5f0c9e21›`. A mark is an HMAC with the key of
the installation, over the workload, the field and the value: the same value in the same field has the same mark, so a
diff shows that it changed; marks of different fields cannot be compared. All other readers see `‹hidden›`, and no
command, argument or literal value of an environment variable at all. The same holds for what all readers share.

Masking hides: literal values of environment variables, except well-known ones that hold settings; in texts, the value
after a name like `--api-key` or `TOKEN=`, the user part of URLs, and tokens by their form; the values of fields with a
name that indicates a secret. Names of Secrets stay visible: they are references.

The invariants: masking any value raises no error; masking a masked value changes nothing; a mark is restored only where
masking the restored manifest yields exactly what was sent, so nobody can move a secret to a field that shows it.

    secret_names      names that indicate a secret
    secret_patterns   parts of a text that look like a secret
    masker            walks over a manifest
    messages          masks sentences of API servers and kubelets, which quote manifests
    unmasking         restores hidden values
"""

from typing import Any

from rollouts.manifests.masking.masker import (
    PUBLIC_READER,
    RECORD_READER,
    Masker,
    Reader,
    make_workload_reader,
    without_digests,
)
from rollouts.manifests.masking.messages import make_text_mask, mask_text
from rollouts.manifests.masking.secret_names import is_secret_name
from rollouts.manifests.masking.secret_patterns import HIDDEN, MARK
from rollouts.manifests.masking.unmasking import unmask_manifest

__all__ = [
    "HIDDEN",
    "MARK",
    "PUBLIC_READER",
    "RECORD_READER",
    "Reader",
    "is_secret_name",
    "make_text_mask",
    "make_workload_reader",
    "mask_manifest",
    "mask_text",
    "unmask_manifest",
    "without_digests",
]


def mask_manifest(obj: Any, reader: Reader = PUBLIC_READER) -> Any:
    """Return a copy of a manifest, or of a part of one, as a reader may see it."""
    return Masker(reader).mask_value(obj, "")
