"""One pass over a workload: the strategy in force, carrying a plan out, history, events, and the pass as a whole."""
