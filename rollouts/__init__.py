"""Grove UI's application: decide in the engine, act at the edges. `docs/architecture.md` has the picture."""
