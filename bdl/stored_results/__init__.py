"""Results of earlier runs: published folders, reuse of their fits, and verification."""
