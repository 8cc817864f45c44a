"""`{% load grove %}`: the filters that turn codes, numbers and times into text; `rollouts.web.text` defines them."""

from django import template

from rollouts.web import text

register = template.Library()

for function in (
    text.age,
    text.duration,
    text.reason,
    text.problem,
    text.cause,
    text.state_label,
    text.share,
    text.lookup,
    text.plural,
    text.split,
    text.command_label,
    text.as_json,
):
    register.filter(function.__name__, function)
