"""The controller: effective strategy, rounds, executor, history, Events, and whole passes."""
