"""Filters of lists that Django and the theme do not have."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model
from django.http import HttpRequest
from unfold.contrib.filters.forms import DropdownForm

MOST_CHOICES = 200


class ValueFilter(admin.FieldListFilter):
    """One of the values that a column has, chosen from a list; with a great many, the first of them."""

    template = "unfold/filters/filters_field.html"
    form_class = DropdownForm

    def __init__(  # noqa: PLR0917 (the signature is Django's)
        self,
        field: Any,
        request: HttpRequest,
        params: dict[str, Any],
        model: type[Model],
        model_admin: "admin.ModelAdmin[Any]",
        field_path: str,
    ) -> None:
        self.lookup_kwarg = field_path
        super().__init__(field, request, params, model, model_admin, field_path)
        rows = model_admin.get_queryset(request).order_by(field_path).values_list(field_path, flat=True).distinct()
        self._values = [value for value in rows[:MOST_CHOICES] if value]
        chosen: Any = self.used_parameters.get(self.lookup_kwarg) or [""]
        self._chosen: str = chosen[-1]

    def expected_parameters(self) -> list[str | None]:
        """The parameters of the address that belong to this filter."""
        return [self.lookup_kwarg]

    def has_output(self) -> bool:
        """Whether there is anything to choose."""
        return bool(self._chosen) or len(self._values) > 1

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Keep the rows that have the value."""
        return queryset.filter(**{self.lookup_kwarg: self._chosen}) if self._chosen else queryset

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Yield the one form that the theme renders."""
        known = dict.fromkeys([*self._values, *([self._chosen] if self._chosen else [])])
        yield {
            "form": self.form_class(
                label=f"By {self.title}",
                name=self.lookup_kwarg,
                choices=(("", "All"), *((value, value) for value in known)),
                data={self.lookup_kwarg: self._chosen},
            )
        }
