"""Peer: the same algorithm in JAX, `jit(vmap(scan))` over trials and updates.

The whole run is one compiled program: shuffling (`jax.random.permutation`), gathering, noise
(`jax.random.normal`) and updates. Every array is float32, as in the engine.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import torch

from bdl.methods.optim import AdamUpdate, DescentState
from bdl.methods.vifa import Vifa
from peers.workload import BATCH_SIZE, Setting, Workload

Array = Any  # jax.Array, where JAX is installed
Numbers = dict[str, Array]
ADAM = AdamUpdate()


class State(NamedTuple):
    """Variational parameters and Adam's moments, as in `bdl.methods.optim.DescentState`."""

    params: Numbers
    first: Numbers
    second: Numbers
    updates: Array


def from_torch(tree: Any) -> Any:
    """Copy a pytree of torch tensors."""
    return jax.tree.map(
        lambda leaf: jnp.array(leaf.numpy()),
        tree,
        is_leaf=lambda leaf: isinstance(leaf, torch.Tensor),
    )


def state_from_torch(state: DescentState) -> State:
    """Copy the engine's state."""
    return State(*(from_torch(part) for part in (state.params, *state.optim)))


def network(theta: Array, x: Array) -> Array:
    """Evaluate the network with one hidden ReLU layer: (D,), (M, d) -> (M,)."""
    d_in = x.shape[1]
    hidden = (len(theta) - 1) // (d_in + 2)
    end1, end2 = hidden * d_in, hidden * (d_in + 1)
    activation = jax.nn.relu(x @ theta[:end1].reshape(hidden, d_in).T + theta[end1:end2])
    return activation @ theta[end2:-1] + theta[-1]


def gradients(
    params: Numbers, setting: Setting[Array], x: Array, y: Array, h: Array, z: Array
) -> Numbers:
    """Estimate the gradients of the negative ELBO from L minibatches.

    Formulas in `bdl.methods.vifa`.
    """
    c, factors, gamma = params["c"], params["F"], params["gamma"]
    psi, scale = jnp.exp(gamma), jnp.exp(0.5 * gamma)
    alpha = setting.prior_precision

    def cost(theta: Array, x: Array, y: Array) -> Array:
        return 0.5 * setting.n * setting.noise_precision * jnp.mean((y - network(theta, x)) ** 2)

    g = jax.vmap(jax.grad(cost))(c + h @ factors.T + scale * z, x, y)
    scaled = factors / psi[:, None]
    inner = jnp.eye(factors.shape[1]) + factors.T @ scaled
    gain = jnp.linalg.solve(inner, scaled.T).T if factors.shape[1] > 1 else scaled / inner
    return {
        "c": alpha * c + g.mean(0),
        "F": alpha * factors - gain + g.T @ h / len(h),
        "gamma": 0.5 * (alpha * psi + (gain * factors).sum(1) - 1 + scale * (g * z).mean(0)),
    }


def update(
    method: Vifa, state: State, setting: Setting[Array], x: Array, y: Array, h: Array, z: Array
) -> State:
    """Make one update from L minibatches, x (L, M, d) and y (L, M), with noise h (L, K) and z (L, D)."""
    grads = gradients(state.params, setting, x, y, h, z)
    updates = state.updates + 1
    scale1, scale2 = 1 / (1 - ADAM.beta1**updates), 1 / (1 - ADAM.beta2**updates)

    def move(value: Array, grad: Array, first: Array, second: Array) -> tuple[Array, Array, Array]:
        grad = grad * (
            method.max_grad_norm / jnp.maximum(jnp.sqrt((grad**2).sum()), method.max_grad_norm)
        )
        first = ADAM.beta1 * first + (1 - ADAM.beta1) * grad
        second = ADAM.beta2 * second + (1 - ADAM.beta2) * grad**2
        step = setting.learning_rate * scale1 * first / (jnp.sqrt(second * scale2) + ADAM.eps)
        return value - step, first, second

    moved = {
        name: move(state.params[name], grads[name], state.first[name], state.second[name])
        for name in grads
    }
    params, first, second = (
        {name: values[part] for name, values in moved.items()} for part in range(3)
    )
    return State(params, first, second, updates)


def trainer(method: Vifa, epochs: int) -> Callable[..., State]:
    """Make the function that trains one model: (key, state, setting, x, y, rows) -> state."""

    def train(
        key: Array, state: State, setting: Setting[Array], x: Array, y: Array, rows: Array
    ) -> State:
        shuffle_key, noise_key = jax.random.split(key)
        batches, (dim, rank) = method.gradients_per_update, state.params["F"].shape
        whole = len(rows) // BATCH_SIZE * BATCH_SIZE
        orders = jax.vmap(lambda key: jax.random.permutation(key, rows))(
            jax.random.split(shuffle_key, epochs)
        )
        minibatches = orders[:, :whole].reshape(-1, BATCH_SIZE)
        updates = len(minibatches) // batches
        chosen = minibatches[: updates * batches].reshape(updates, batches, BATCH_SIZE)

        def body(state: State, step: tuple[Array, Array]) -> tuple[State, None]:
            rows, key = step
            noise = jax.random.normal(key, (batches, rank + dim))
            return update(
                method, state, setting, x[rows], y[rows], noise[:, :rank], noise[:, rank:]
            ), None

        final, _ = jax.lax.scan(body, state, (chosen, jax.random.split(noise_key, updates)))
        result: State = final
        return result

    return train


def numbers(state: State) -> Mapping[str, torch.Tensor]:
    """Parameters and Adam's moments by name, to be compared."""
    found: dict[str, torch.Tensor] = {}
    for name in state.params:
        parts = {name: state.params, f"first {name}": state.first, f"second {name}": state.second}
        found |= {
            label: torch.from_numpy(jax.device_get(part[name]).copy())
            for label, part in parts.items()
        }
    return found


def compile_run(work: Workload[Vifa], state: DescentState, epochs: int) -> Callable[[], None]:
    """Compile the training of all trials for some epochs; the result runs it to the end."""
    keys = jax.random.split(jax.random.key(0), len(work.trials))
    rows = torch.stack([torch.from_numpy(rows) for rows in work.trials.rows])
    arguments = (
        keys,
        state_from_torch(state),
        from_torch(work.settings()),
        *from_torch((*work.data(), rows)),
    )
    program = jax.jit(jax.vmap(trainer(work.method, epochs))).lower(*arguments).compile()

    def run() -> None:
        for leaf in jax.tree.leaves(program(*arguments)):
            leaf.block_until_ready()

    return run
