"""Sessions in the database, where a row is named by the digest of its key.

Django's own store names a row by the key that the browser sends as its cookie: an account that reads the table, or a
backup of it, can act as every person who is signed in. Here the key is in the cookie alone. A key is 165 random bits,
so a plain digest cannot be turned back; the column holds 40 characters, which are 160 bits of it.
"""

import hashlib
from typing import Any, Final

from django.contrib.sessions.backends import db
from django.utils import timezone

_DIGEST_LENGTH: Final = 40  # of the column


def digest_of(key: str) -> str:
    """Return what the row of a session is named by."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()[:_DIGEST_LENGTH]


class SessionStore(db.SessionStore):
    """Django's store, which puts a digest wherever it asks the database for a key."""

    def load(self) -> dict[str, Any]:
        """Return what the session holds; nothing, and no key, for one that is not there any more."""
        row = self.model.objects.filter(**self._valid_row()).first()
        return self._read(row)

    async def aload(self) -> dict[str, Any]:
        """Do the same."""
        row = await self.model.objects.filter(**self._valid_row()).afirst()
        return self._read(row)

    def exists(self, session_key: str) -> bool:
        """Say whether a key is taken."""
        return bool(super().exists(digest_of(session_key)))

    async def aexists(self, session_key: str) -> bool:
        """Say whether a key is taken."""
        return bool(await super().aexists(digest_of(session_key)))

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        """Return the row that is to be written."""
        return _named_by_digest(super().create_model_instance(data))

    async def acreate_model_instance(self, data: dict[str, Any]) -> Any:
        """Return the row that is to be written."""
        return _named_by_digest(await super().acreate_model_instance(data))

    def delete(self, session_key: str | None = None) -> None:
        """End a session, this one unless a key is given."""
        if key := session_key or self.session_key:
            super().delete(digest_of(key))

    async def adelete(self, session_key: str | None = None) -> None:
        """End a session, this one unless a key is given."""
        if key := session_key or self.session_key:
            await super().adelete(digest_of(key))

    def _valid_row(self) -> dict[str, Any]:
        return {"session_key": digest_of(self.session_key or ""), "expire_date__gt": timezone.now()}

    def _read(self, row: Any) -> dict[str, Any]:
        if row is None:
            self._session_key = None
            return {}
        held: dict[str, Any] = self.decode(row.session_data)
        return held


def _named_by_digest(row: Any) -> Any:
    row.session_key = digest_of(row.session_key)
    return row
