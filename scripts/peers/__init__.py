"""What `bench_training.py`, `bench_methods.py` and `bench_natural_gradients.py` measure, and how."""
