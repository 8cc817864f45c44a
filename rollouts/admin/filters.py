"""List filters that Django and the theme lack."""

from collections.abc import Iterator
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import RelatedDropdownFilter
from unfold.widgets import UnfoldAdminSelectWidget

MAX_CHOICES = 200


class PlainForm(forms.Form):
    """One choice as a native select element, which keyboards and screen readers support."""

    def __init__(self, name: str, label: str, choices: Any, *args: Any, multiple: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields[name] = forms.ChoiceField(
            label=label, choices=choices, required=False, widget=UnfoldAdminSelectWidget()
        )


class RelatedFilter(RelatedDropdownFilter):
    """A filter by a related row."""

    form_class = PlainForm  # type: ignore[assignment]


class ValueFilter(admin.FieldListFilter):
    """A filter by one of the values of a column, at most `MAX_CHOICES`."""

    # The possible values, where they are known; this saves a query over a long table.
    fixed: ClassVar[tuple[str, ...]] = ()
    template = "unfold/filters/filters_field.html"
    form_class = PlainForm

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
        self._values = [*self.fixed] or self._find_values(model_admin.get_queryset(request))
        chosen: Any = self.used_parameters.get(self.lookup_kwarg) or [""]
        self._chosen: str = chosen[-1]

    def _find_values(self, rows: QuerySet[Any]) -> list[str]:
        values = rows.order_by(self.lookup_kwarg).values_list(self.lookup_kwarg, flat=True).distinct()
        return [value for value in values[:MAX_CHOICES] if value]

    def expected_parameters(self) -> list[str | None]:
        """Return the query parameters of this filter."""
        return [self.lookup_kwarg]

    def has_output(self) -> bool:
        """Return whether there is a choice."""
        return bool(self._chosen) or len(self._values) > 1

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Return the rows with the chosen value."""
        return queryset.filter(**{self.lookup_kwarg: self._chosen}) if self._chosen else queryset

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Yield the form that the theme renders."""
        known = dict.fromkeys([*self._values, *([self._chosen] if self._chosen else [])])
        yield {
            "form": self.form_class(
                label=f"By {self.title}",
                name=self.lookup_kwarg,
                choices=(("", "All"), *((value, value) for value in known)),
                data={self.lookup_kwarg: self._chosen},
            )
        }
