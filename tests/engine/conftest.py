"""Settings of hypothesis for the engine's tests: they end within seconds, and none fails on a busy machine."""

from hypothesis import settings

from tests.thoroughness import examples

settings.register_profile("engine", deadline=None, max_examples=examples(20))
settings.load_profile("engine")
