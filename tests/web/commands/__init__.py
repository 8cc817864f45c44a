"""Pages that command, at the server: what a form shows, refuses, asks and carries out."""
