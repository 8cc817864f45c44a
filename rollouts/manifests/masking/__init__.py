"""What a manifest may show: values that may be secrets are hidden, and put back when the manifest returns.

Before it: manifests and templates as they are stored. After it: pages, the API, diffs and the audit, none of which ever
sees what is hidden. It is a heuristic: names and forms that speak of a secret (`secret_names`, `secret_patterns`).

Readers who may apply a manifest to the workload see marks like `‹hidden 5f0c9e21›`. A mark is made with the key of this
installation, of the workload and of the field: there the same value has the same mark, so that a diff shows that it
changed, and nowhere else does it tell anything. All other readers see `‹hidden›`, and no command, no argument and no
literal value of an environment variable at all. So does everybody in what is shown to all alike.

Hidden are literal values of environment variables, but for those that are well known to hold none; in texts what
follows a name like `--api-key` or `TOKEN=`, the user part of URLs, and what is a token by its form; what hangs by
a name that speaks of a secret. Names of Secrets stay: they are references. The invariants: anything at all can be
masked without an error, what is masked twice is masked once, and a mark is only put back where it is masked again to
exactly what was sent, so that nobody can move a value to where it is shown.

    names       which names speak of a secret
    texts       which parts of a text look like one
    masker      the walk over a manifest
    sentences   what API servers and kubelets quote
    restoring   the way back
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
    """Return a manifest, or a part of one, as a reader may see it; nothing given is changed."""
    return Masker(reader).mask_value(obj, "")
