"""Results on disk: the one place that knows which files a folder of results holds."""
