"""The form of a strategy override: it makes a draft from the input and shows findings beside the fields.

It decides nothing: `services.override_preview` validates the draft, with the same sentences as the API, and the service
saves it. The live check uses the same form, so it shows exactly the errors that saving would show.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from rollouts.engine.manifest.findings import Finding
from rollouts.engine.model.budget import parse_budget
from rollouts.engine.model.workload import IntOrPercent, Strategy
from rollouts.models import StrategyOverride
from rollouts.models.mirror import LABEL_LENGTH, NAME_LENGTH
from rollouts.runtime.connections import configured_cluster_names
from rollouts.services.override_preview import (
    MAX_COMPONENTS,
    MAX_DAYS,
    MAX_REASON_CHARACTERS,
    OverrideCheck,
    OverrideDraft,
    override_check,
)

_EMPTY_ROWS: Final = 2  # so that the form works without scripts
_COLUMNS: Final = ("name", "max_unavailable", "max_surge")
# The form field of a finding, by the beginning of the finding's path; the first match counts.
_FIELD_BY_PATH: Final[tuple[tuple[str, str | None], ...]] = (
    ("strategy.maxUnavailable", "max_unavailable"),
    ("strategy.maxSurge", "max_surge"),
    ("strategy.components", "components"),
    ("strategy", "strategy"),
    *((name, name) for name in ("cluster", "namespace", "name", "labels", "reason", "expires_at")),
)


@dataclass(frozen=True, slots=True)
class ComponentRow:
    """A row of the table of components, as typed."""

    name: str = ""
    max_unavailable: str = ""
    max_surge: str = ""
    by_default: bool = False  # use the default instead of the manifest's value

    @property
    def is_blank(self) -> bool:
        """Return whether the row is empty."""
        return not (self.name or self.max_unavailable or self.max_surge or self.by_default)


class ComponentsWidget(forms.Widget):
    """A table with a row for each clique or scaling group."""

    needs_multipart_form = False

    def value_from_datadict(self, data: Mapping[str, Any], _files: Any, name: str) -> list[ComponentRow]:
        """Return the submitted rows."""
        numbers = sorted(_row_numbers(data, name))[: MAX_COMPONENTS + 1]
        rows = (_parse_row(data, f"{name}-{number}") for number in numbers)
        return [row for row in rows if not row.is_blank]

    def value_omitted_from_data(self, _data: Mapping[str, Any], _files: Any, _name: str) -> bool:
        """Return False: an empty table is a value."""
        return False

    def id_for_label(self, id_: str) -> str:
        """Return nothing: a label cannot point at a table."""
        return ""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        """Render the rows and some empty ones, with the project's templates, which the form renderer does not find."""
        rows = [*(value or ()), *[ComponentRow()] * _EMPTY_ROWS]
        return render_to_string("admin/components_widget.html", {"rows": [*enumerate(rows)], "next": len(rows)})


class ComponentsField(forms.Field):
    """Budgets of components by their names."""

    widget = ComponentsWidget

    def clean(self, value: Sequence[ComponentRow]) -> dict[str, dict[str, IntOrPercent | None] | None]:
        """Return the budgets as an override stores them, or name the invalid row."""
        found: dict[str, dict[str, IntOrPercent | None] | None] = {}
        for row in value or ():
            if not row.name:
                raise ValidationError("Enter the name of a clique or scaling group in each row.")
            if row.name in found:
                raise ValidationError(f"{row.name} has two rows; remove one of them.")
            if row.by_default and (row.max_unavailable or row.max_surge):
                raise ValidationError(f"{row.name} has numbers and is set to its default; remove one of the two.")
            budget = {"maxUnavailable": row.max_unavailable, "maxSurge": row.max_surge}
            written = {part: parse_budget(text) for part, text in budget.items() if text}
            found[row.name] = None if row.by_default else written
        return found


class LabelsField(forms.CharField):
    """Labels that a workload must have, written like a label selector."""

    def to_python(self, value: Any) -> Any:
        """Return the labels, or name the invalid part.

        >>> LabelsField(required=False).clean("team=search, tier=gold")
        {'team': 'search', 'tier': 'gold'}
        """
        labels: dict[str, str] = {}
        for part in filter(None, (part.strip() for part in str(value or "").split(","))):
            name, sign, text = (piece.strip() for piece in part.partition("="))
            if not sign or not name:
                raise ValidationError(f"{part[:80]!r} is not a label; write name=value, separated by commas.")
            labels[name] = text.removeprefix("=").strip()
        return labels


def _input(**attributes: str) -> forms.TextInput:
    return forms.TextInput({"class": "grove-input", "autocomplete": "off", "spellcheck": "false", **attributes})


class OverrideForm(forms.ModelForm):  # type: ignore[type-arg]
    """An override. No field is required here: the check reports missing values."""

    cluster = forms.ChoiceField(required=False, widget=forms.Select({"class": "grove-input"}))
    namespace = forms.CharField(required=False, max_length=LABEL_LENGTH, widget=_input(placeholder="any"))
    name = forms.CharField(label="Workload", required=False, max_length=NAME_LENGTH, widget=_input(placeholder="any"))
    labels = LabelsField(
        required=False,
        widget=_input(placeholder="team=search, tier=gold"),
        help_text="A workload must have all of these labels. The most specific override wins: workload name before"
        " labels before namespace before cluster.",
    )
    strategy = forms.ChoiceField(
        required=False,
        choices=[("", "unchanged"), *((str(one), str(one)) for one in Strategy)],
        widget=forms.Select({"class": "grove-input"}),
    )
    max_unavailable = forms.CharField(
        label="May be unavailable", required=False, max_length=20, widget=_input(placeholder="unchanged")
    )
    max_surge = forms.CharField(label="Surge", required=False, max_length=20, widget=_input(placeholder="unchanged"))
    components = ComponentsField(required=False)
    reason = forms.CharField(
        required=False,
        max_length=MAX_REASON_CHARACTERS,
        widget=forms.Textarea({"class": "grove-input", "rows": 3, "aria-required": "true"}),
        help_text="Other users need it to decide whether the override is still needed.",
    )
    expires_at = forms.DateTimeField(
        label="Ends at (UTC)",
        required=False,
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"],
        widget=forms.DateTimeInput(
            {"class": "grove-input", "type": "datetime-local", "aria-required": "true"}, format="%Y-%m-%dT%H:%M"
        ),
        help_text=f"At most {MAX_DAYS} days from now. For a longer time, change the manifest.",
    )
    version = forms.CharField(required=False, widget=forms.HiddenInput)

    class Meta:
        """Every field is our own."""

        model = StrategyOverride
        fields = ()

    draft: OverrideDraft
    check_result: OverrideCheck | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.check_result = None
        row: StrategyOverride = self.instance
        names = dict.fromkeys([*configured_cluster_names(), *filter(None, [row.cluster])])
        self.fields["cluster"].choices = [("", "any"), *((name, name) for name in names)]  # type: ignore[attr-defined]
        if row.pk is not None:
            self.initial = {**_initial_of(row), **self.initial}

    def clean(self) -> dict[str, Any]:
        """Make the draft and check it; the findings become errors of the fields."""
        data: dict[str, Any] = self.cleaned_data
        self.draft = OverrideDraft(
            **{name: data.get(name) or "" for name in ("cluster", "namespace", "name", "strategy", "reason")},
            labels=data.get("labels") or {},
            max_unavailable=parse_budget(data.get("max_unavailable") or None),
            max_surge=parse_budget(data.get("max_surge") or None),
            components=data.get("components") or {},
            expires_at=data.get("expires_at"),
        )
        if self.errors.keys() & {"cluster", "namespace", "name", "labels"}:
            return data  # the matching workloads are unknown
        replacing = self.instance if self.instance.pk else None
        self.check_result = override_check(self.draft, replacing)
        for field, sentences in group_findings(self.check_result.findings).items():
            if field not in self.errors:
                for sentence in sentences:
                    self.add_error(field, sentence)
        return data


def group_findings(findings: Iterable[Finding]) -> dict[str | None, list[str]]:
    """Return the sentences of findings by form field; None stands for the whole form."""
    grouped: dict[str | None, list[str]] = {}
    for finding in findings:
        field = next((field for start, field in _FIELD_BY_PATH if finding.field.startswith(start)), None)
        sentence = f"{finding.message[:1].upper()}{finding.message[1:]}."
        if field == "components":
            where = finding.field.removeprefix("strategy.components").strip(".")
            sentence = f"{where.replace('.', ' ')}: {finding.message}." if where else sentence
        grouped.setdefault(field, []).append(sentence)
    return grouped


def _initial_of(row: StrategyOverride) -> dict[str, Any]:
    return {
        "cluster": row.cluster,
        "namespace": row.namespace,
        "name": row.name,
        "labels": ", ".join(f"{name}={value}" for name, value in (row.selector or {}).items()),
        "strategy": row.strategy,
        "max_unavailable": row.max_unavailable or "",
        "max_surge": row.max_surge or "",
        "components": [*_rows_of(row.components or {})],
        "reason": row.reason,
        "expires_at": row.expires_at.astimezone(UTC) if row.expires_at else None,
        "version": row.version,
    }


def _rows_of(components: Mapping[str, Any]) -> Iterator[ComponentRow]:
    for name, budget in components.items():
        texts = {part: "" if value is None else str(value) for part, value in (budget or {}).items()}
        yield ComponentRow(name, texts.get("maxUnavailable", ""), texts.get("maxSurge", ""), by_default=budget is None)


def _parse_row(data: Mapping[str, Any], start: str) -> ComponentRow:
    name, max_unavailable, max_surge = (str(data.get(f"{start}-{column}", "")).strip() for column in _COLUMNS)
    return ComponentRow(name, max_unavailable, max_surge, by_default=bool(data.get(f"{start}-by_default")))


def _row_numbers(data: Mapping[str, Any], name: str) -> Iterator[int]:
    start, end = f"{name}-", f"-{_COLUMNS[0]}"
    for key in data:
        number = key.removeprefix(start).removesuffix(end)
        if key.startswith(start) and key.endswith(end) and number.isdecimal():
            yield int(number)
