"""Execution of the fits of a plan in one process or several."""
