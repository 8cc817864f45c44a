"""Sentences that quote what must not be shown: of API servers, kubelets, schedulers.

Before it: a sentence, and the manifests that it may be about. What is hidden in these is hidden in the sentence too,
also where it stands alone, and so is what looks like a secret by itself. Sentences are for everybody, so their marks
tell nothing, and what is quoted of a command line is hidden unless it is a plain word.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from rollouts.manifests.masking.masker import PUBLIC_READER, RECORD_READER, Masker
from rollouts.manifests.masking.secret_patterns import HIDDEN, hide_in_text

# Shorter values are in any sentence by chance.
_SHORTEST_QUOTED: Final = 4
_SHORTEST_ARGUMENT: Final = 8
# What may be quoted without its user. Shorter ones may as well be ports.
_PASSWORD: Final = re.compile(r"[^\s:/@]++:(?P<password>[^\s/]{8,}+)")
# A name, a path, a number.
_PLAIN_WORD: Final = re.compile(r"[a-z0-9./:_-]*+")


def mask_text(text: str, *manifests: Any) -> str:
    """Return a sentence as it may be shown: also without the values that are hidden in these manifests."""
    return make_text_mask(*manifests)(text)


def make_text_mask(*manifests: Any) -> Callable[[str], str]:
    """Return the same for many sentences, so that the manifests are gone through once."""
    secrets = _find_secrets(manifests)

    def mask(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return hide_in_text(text, _hide)

    return mask


def _find_secrets(manifests: tuple[Any, ...]) -> list[str]:
    """Return the texts that are hidden in manifests, the longest first."""
    everybody, operators = Masker(PUBLIC_READER), Masker(RECORD_READER)
    for manifest in manifests:
        everybody.mask_value(manifest, "")
        operators.mask_value(manifest, "")
    found = {*operators.secrets, *everybody.secrets}
    inner = Masker(RECORD_READER)
    for secret in found:
        inner.mask_value(secret, "")  # hidden whole, and part of it may be quoted alone
    found |= {*inner.secrets}
    found |= {password["password"] for secret in found if (password := _PASSWORD.fullmatch(secret))}
    arguments = {
        text for text in everybody.commands if len(text) >= _SHORTEST_ARGUMENT and not _PLAIN_WORD.fullmatch(text)
    }
    return sorted({one for one in found if len(one) >= _SHORTEST_QUOTED} | arguments, key=lambda one: (-len(one), one))


def _hide(_: str) -> str:
    return HIDDEN
