"""A column type that Django does not have."""

from typing import Any

import orjson
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.expressions import Expression


class OrjsonField(models.TextField):  # type: ignore[type-arg]  # Django has no parameters here when it runs
    """JSON as text, read and written by orjson.

    For values that are read whole, thousands at a time, and never searched: reading takes a quarter of the time of
    Django's own JSON column.
    """

    def from_db_value(self, value: str | None, _expression: Expression, _connection: BaseDatabaseWrapper) -> Any:
        """Parse a value from the database."""
        return None if value is None else orjson.loads(value)

    def to_python(self, value: Any) -> Any:
        """Parse a value from a form or a fixture."""
        return orjson.loads(value) if isinstance(value, str) else value

    def get_prep_value(self, value: Any) -> str | None:
        """Render a value for the database."""
        return None if value is None else orjson.dumps(value).decode()

    def value_to_string(self, obj: models.Model) -> str:
        """Render a value for a fixture."""
        return self.get_prep_value(self.value_from_object(obj)) or "null"
