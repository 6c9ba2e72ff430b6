"""Rows and posteriors of a run, and the folder that holds them."""
