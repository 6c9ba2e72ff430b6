"""Golden trials: stored digits of every component, held against its version."""
