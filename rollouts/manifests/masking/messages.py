"""Masks messages of API servers, kubelets and schedulers, which may quote secrets from manifests.

Before it: a message, and the manifests that it may quote. The mask hides every value in the message that is hidden in
the manifests, and everything that looks like a secret by itself. All readers see messages, so marks carry no digest,
and quoted parts of a command line are hidden unless they are plain words.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from rollouts.manifests.masking.masker import PUBLIC_READER, Masker, Reader
from rollouts.manifests.masking.secret_patterns import HIDDEN, hide_in_text

# Without the copies of manifests in annotations: nothing quotes them, and they are large.
_SENTENCE_READER: Final = Reader(sees_commands=True)
# Shorter values appear in messages by chance.
_SHORTEST_QUOTED: Final = 4
_SHORTEST_ARGUMENT: Final = 8
# The password of a `user:password` pair, which a message may quote alone. Shorter ones may be ports.
_PASSWORD: Final = re.compile(r"[^\s:/@]++:(?P<password>[^\s/]{8,}+)")
# A name, a path, a number.
_PLAIN_WORD: Final = re.compile(r"[a-z0-9./:_-]*+")


def mask_text(text: str, *manifests: Any) -> str:
    """Mask a message, including the values that are hidden in the manifests."""
    return make_text_mask(*manifests)(text)


def make_text_mask(*manifests: Any) -> Callable[[str], str]:
    """Return a function that masks messages; the manifests are searched once for all of them."""
    secrets = _find_secrets(manifests)

    def mask(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return hide_in_text(text, _hide)

    return mask


def _find_secrets(manifests: tuple[Any, ...]) -> list[str]:
    """Return the texts that are hidden in manifests, longest first."""
    public, record = Masker(PUBLIC_READER), Masker(_SENTENCE_READER)
    for manifest in manifests:
        public.mask_value(manifest, "")
        record.mask_value(manifest, "")
    found = {*record.secrets, *public.secrets}
    inner = Masker(_SENTENCE_READER)
    for secret in found:
        inner.mask_value(secret, "")  # a message may quote a part of a secret alone
    found |= {*inner.secrets}
    found |= {password["password"] for secret in found if (password := _PASSWORD.fullmatch(secret))}
    arguments = {
        text for text in public.commands if len(text) >= _SHORTEST_ARGUMENT and not _PLAIN_WORD.fullmatch(text)
    }
    return sorted({one for one in found if len(one) >= _SHORTEST_QUOTED} | arguments, key=lambda one: (-len(one), one))


def _hide(_: str) -> str:
    return HIDDEN
