"""Answers that are sent piece by piece, read to their end.

The product's server is asynchronous, and so are these answers; a client of the tests hands them on as they are.
"""

from typing import Any

from asgiref.sync import async_to_sync


def read_text(answer: Any) -> str:
    """Return all that is sent, as text; what is asked of the database on the way is asked in the test's own thread."""

    async def read() -> bytes:
        return b"".join([piece async for piece in answer])

    return async_to_sync(read)().decode()
