"""Tasks of a benchmark: what is fitted, under which identity, and at what cost."""
