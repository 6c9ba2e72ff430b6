"""Where a run keeps its rows."""
