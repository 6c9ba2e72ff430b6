"""What `bench_training.py`, `bench_methods.py` and the other `bench_*.py` measure, and how."""
