"""The REST API under /api/v1/: reads by `selectors`, commands by `services`, described by OpenAPI.

A module for each subject has its views and `urlpatterns`; `serializers` reads request bodies, and
`response_serializers` describes answers. Views parse and render; services and selectors decide. Every error is
problem+json (`problems`) with the same sentences as the pages.
"""
