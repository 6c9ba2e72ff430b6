"""Doing what a plan says and the store lacks."""
