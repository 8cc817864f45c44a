"""For the engine's tests: none fails because the machine is busy with something else."""

from hypothesis import settings

settings.register_profile("engine", deadline=None)
settings.load_profile("engine")
