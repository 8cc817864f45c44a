"""Pages that change something: each has a form, a preview of what it would do, and the command itself.

`forms` has the base classes. Every other module is one form, or a part of several: its fields at first, how they are
parsed into a change (`services.changes`), and what the page says afterwards. Rules are in the engine and the services;
this package only shows them.
"""
