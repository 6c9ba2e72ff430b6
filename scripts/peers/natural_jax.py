"""Peer: the lines of `peers.natural_loop` in JAX, `jit(vmap(scan))` over models and updates, in float64.

The whole run is one compiled program: drawing minibatches and noise (`jax.random`), and updates.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from peers.natural_loop import Algorithm, Array, Rows

enable_x64: Any = (
    jax if hasattr(jax, "enable_x64") else import_module("jax.experimental")
).enable_x64  # before 0.8


def numbers(
    algorithm: Algorithm, states: Any, theta: Array, rows: Rows, rate: float
) -> Mapping[str, NDArray[np.float64]]:
    """Make one update of models that are stacked; means and precisions, to be compared."""
    with enable_x64(True):

        def one(state: Any, theta: Array, rows: Rows) -> Mapping[str, Array]:
            return algorithm.numbers(algorithm.update(state, theta, rows, rate, jnp), jnp)

        found = jax.jit(jax.vmap(one))(*jax.tree.map(jnp.asarray, (states, theta, rows)))
        return {name: np.asarray(value) for name, value in found.items()}


def trainer(
    algorithm: Algorithm, rates: Array, samples: int, batch_size: int
) -> Callable[[Array, Rows], Any]:
    """Make the function that trains one model at these rates, one an update: (key, rows) -> state."""

    def train(key: Array, rows: Rows) -> Any:
        n, dim = rows.x.shape

        def body(state: Any, step: tuple[Array, Array]) -> tuple[Any, None]:
            rate, key = step
            rows_key, noise_key = jax.random.split(key)
            chosen = jax.random.randint(rows_key, (batch_size,), 0, n)
            theta = algorithm.sample(
                state, jax.random.normal(noise_key, (samples, algorithm.normals(dim))), jnp
            )
            return algorithm.update(state, theta, rows.take(chosen), rate, jnp), None

        start = jax.tree.map(jnp.asarray, algorithm.start(dim))
        final, _ = jax.lax.scan(body, start, (rates, jax.random.split(key, len(rates))))
        return final

    return train


def compile_run(
    algorithm: Algorithm, rows: Rows, rates: NDArray[np.float64], samples: int, batch_size: int
) -> Callable[[], None]:
    """Compile the training of models that are stacked at these rates.

    The result runs it to the end.
    """
    with enable_x64(True):
        keys = jax.random.split(jax.random.key(0), len(rows.y))
        given = jax.tree.map(jnp.asarray, rows)
        train = jax.vmap(trainer(algorithm, jnp.asarray(rates), samples, batch_size))
        program = jax.jit(train).lower(keys, given).compile()

    def run() -> None:
        with enable_x64(True):
            for leaf in jax.tree.leaves(program(keys, given)):
                leaf.block_until_ready()

    return run
