"""The contenders of `bench_training.py`: the engine, a plain PyTorch loop and JAX, on one workload."""
