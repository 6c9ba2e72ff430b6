"""Running a benchmark: plan, executor, store, and what is published from it."""
