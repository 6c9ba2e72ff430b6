"""Running a benchmark: plan, executor, append-only store, and what is published from it."""
