"""What follows a run: rows and provenance, tables, figures, and the MLflow mirror."""
