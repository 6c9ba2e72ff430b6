"""Published files of a run, its report, comparisons of runs, and the export to MLflow."""
