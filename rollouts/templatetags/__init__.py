"""Template tags: modules that Django loads by name, and that only register functions of `web` and `admin`."""
