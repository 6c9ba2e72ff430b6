"""Files to start from, which `bdl-bench init` copies. They run as they are."""
