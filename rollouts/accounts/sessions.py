"""Sessions in the database, where the primary key of a row is the digest of the session key.

Django's own store writes the session key itself, which the browser sends as its cookie: an account that reads the
table, or a backup of it, can act as every person who is signed in. Here only the cookie holds the key. A session key
has 165 random bits, so an unsalted digest cannot be reversed; the column holds 40 characters, which are 160 bits of it.
"""

import hashlib
from typing import Any, Final

from django.contrib.sessions.backends import db
from django.utils import timezone

_DIGEST_LENGTH: Final = 40  # of the column


def digest_of(key: str) -> str:
    """Return the primary key of a session's row."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()[:_DIGEST_LENGTH]


class SessionStore(db.SessionStore):
    """Django's store, with a digest in place of the session key in every query."""

    def load(self) -> dict[str, Any]:
        """Return the data of the session; if its row is gone, return nothing and drop the key."""
        row = self.model.objects.filter(**self._valid_row()).first()
        return self._read(row)

    async def aload(self) -> dict[str, Any]:
        """Return the data of the session, without blocking the event loop."""
        row = await self.model.objects.filter(**self._valid_row()).afirst()
        return self._read(row)

    def exists(self, session_key: str) -> bool:
        """Whether a session with this key exists."""
        return bool(super().exists(digest_of(session_key)))

    async def aexists(self, session_key: str) -> bool:
        """Whether a session with this key exists."""
        return bool(await super().aexists(digest_of(session_key)))

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        """Return the row to write."""
        return _named_by_digest(super().create_model_instance(data))

    async def acreate_model_instance(self, data: dict[str, Any]) -> Any:
        """Return the row to write."""
        return _named_by_digest(await super().acreate_model_instance(data))

    def delete(self, session_key: str | None = None) -> None:
        """Delete a session, this one unless a key is given."""
        if key := session_key or self.session_key:
            super().delete(digest_of(key))

    async def adelete(self, session_key: str | None = None) -> None:
        """Delete a session, this one unless a key is given."""
        if key := session_key or self.session_key:
            await super().adelete(digest_of(key))

    def _valid_row(self) -> dict[str, Any]:
        return {"session_key": digest_of(self.session_key or ""), "expire_date__gt": timezone.now()}

    def _read(self, row: Any) -> dict[str, Any]:
        if row is None:
            self._session_key = None
            return {}
        data: dict[str, Any] = self.decode(row.session_data)
        return data


def _named_by_digest(row: Any) -> Any:
    row.session_key = digest_of(row.session_key)
    return row
