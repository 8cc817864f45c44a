"""The REST API under /api/v1/: reads by `selectors`, commands by `services`, described by OpenAPI.

A module for each subject, with its views and `urlpatterns`; `response_serializers` has what goes in and out. Views
parse and render; nothing is decided here. Every error is problem+json (`problems`) with the same sentences as
everywhere.
"""
