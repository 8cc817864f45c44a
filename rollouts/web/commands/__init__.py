"""Pages from which people command: each a form, what it would do, and the command itself.

`forms` is what all of them have in common. A module beside it knows one form: how it is filled in at first, how it is
read, and which service carries it out. Rules stand in the engine and in the services; here they are only shown.
"""
