"""What `bench_training.py` and `bench_methods.py` measure, and how."""
