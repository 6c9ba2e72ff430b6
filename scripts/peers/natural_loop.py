"""Peer: natural gradients for one logistic regression at a time, in the NumPy that one writes by hand.

The algorithms are those of the SLANG paper (2018), with the corrections of docs/errata.md. An
update forms the gradients of all S M pairs of a parameter sample and an example, and matrices of D
x D, which here are no larger than the Gram matrix of so many gradients. Whatever has NumPy's
functions can run them (`xp`): `peers.natural_jax` compiles the same lines.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

Array = Any  # of NumPy or of JAX


class Rows(NamedTuple):
    """Examples of a logistic regression."""

    x: Array
    """Inputs with a last column of ones, (M, D)."""
    y: Array
    """Labels, 0 or 1, (M,)."""
    n: Array
    """Size N of the whole training set."""
    prior: Array
    """Prior precision of each parameter, (D,)."""

    def take(self, chosen: Array) -> "Rows":
        """Return some of the rows."""
        return self._replace(x=self.x[chosen], y=self.y[chosen])


class Algorithm(Protocol):
    """What trains one model; its state is a NamedTuple of arrays."""

    def start(self, dim: int) -> Any:
        """Return the state before the first update: mean 0, precision I."""

    def normals(self, dim: int) -> int:
        """Count the standard normals of a parameter sample."""

    def sample(self, state: Any, noise: Array, xp: Any = np) -> Array:
        """Turn standard normals (S, k) into parameter samples (S, D)."""

    def update(self, state: Any, theta: Array, rows: Rows, rate: Array, xp: Any = np) -> Any:
        """Update from parameter samples (S, D) and a minibatch.

        Both learning rates are the same.
        """

    def numbers(self, state: Any, xp: Any = np) -> Mapping[str, Array]:
        """Return the mean and the precision, (D, D) or its diagonal, to be compared."""


class NaturalState(NamedTuple):
    """Mean (D,), and precision (D, D) or its diagonal (D,)."""

    mu: Array
    P: Array


@dataclass(frozen=True)
class NaturalLoop:
    """The natural gradient with a full or diagonal precision.

    Settings as `bdl.methods.natural_gradient` has them.
    """

    curvature: str
    structure: str

    def start(self, dim: int) -> NaturalState:
        """Return the state before the first update."""
        return NaturalState(
            np.zeros(dim), np.eye(dim) if self.structure == "full" else np.ones(dim)
        )

    def normals(self, dim: int) -> int:
        """Count the standard normals of a parameter sample."""
        return dim

    def sample(self, state: NaturalState, noise: Array, xp: Any = np) -> Array:
        """Draw mu + C^-T e, where C is the Cholesky factor of P.

        Mu + P^(-1/2) e for a diagonal.
        """
        if self.structure == "diagonal":
            return state.mu + noise / xp.sqrt(state.P)
        return state.mu + xp.linalg.solve(xp.linalg.cholesky(state.P).T, noise.T).T

    def update(
        self, state: NaturalState, theta: Array, rows: Rows, rate: Array, xp: Any = np
    ) -> NaturalState:
        """Update the precision, then the mean with it."""
        p = probabilities(theta, rows, xp)
        scale = rows.n / p.size
        gradients = each(p - rows.y, rows)
        curved = gradients if self.curvature == "fisher" else each(xp.sqrt(p * (1 - p)), rows)
        force = scale * gradients.sum(0) + rows.prior * state.mu
        if self.structure == "diagonal":
            P = (1 - rate) * state.P + rate * (scale * (curved**2).sum(0) + rows.prior)
            return NaturalState(state.mu - rate * force / P, P)
        P = (1 - rate) * state.P + rate * (scale * curved.T @ curved + xp.diag(rows.prior))
        return NaturalState(state.mu - rate * xp.linalg.solve(P, force), P)

    def numbers(self, state: NaturalState, xp: Any = np) -> Mapping[str, Array]:
        """Return the state."""
        return state._asdict()


class SlangState(NamedTuple):
    """As `bdl.methods.slang.SlangState`."""

    mu: Array
    U: Array
    d: Array
    gbar: Array
    updates: Array


@dataclass(frozen=True)
class SlangLoop:
    """SLANG; settings as `bdl.methods.slang` has them."""

    rank: int
    momentum: float

    def start(self, dim: int) -> SlangState:
        """Return the state before the first update."""
        zero = np.zeros(dim)
        return SlangState(zero, np.zeros((dim, self.rank)), zero + 1, zero, np.float64(0))

    def normals(self, dim: int) -> int:
        """Count the standard normals of a parameter sample."""
        return dim + self.rank

    def sample(self, state: SlangState, noise: Array, xp: Any = np) -> Array:
        """Draw mu + P^-1 (d^(1/2) e + U f)."""
        e, f = noise[:, : len(state.mu)], noise[:, len(state.mu) :]
        return state.mu + solve(state.U, state.d, e * xp.sqrt(state.d) + f @ state.U.T, xp)

    def update(
        self, state: SlangState, theta: Array, rows: Rows, rate: Array, xp: Any = np
    ) -> SlangState:
        """Update the precision, then the mean with it."""
        p = probabilities(theta, rows, xp)
        scale = rows.n / p.size
        gradients = each(p - rows.y, rows)
        A = (1 - rate) * state.U @ state.U.T + rate * scale * gradients.T @ gradients
        values, vectors = xp.linalg.eigh(A)
        U = vectors[:, -self.rank :] * xp.sqrt(xp.maximum(values[-self.rank :], 0))
        d = (1 - rate) * state.d + xp.diag(A) - (U**2).sum(1) + rate * rows.prior
        gbar, updates = (
            self.momentum * state.gbar + (1 - self.momentum) * scale * gradients.sum(0),
            state.updates + 1,
        )
        force = gbar / (1 - self.momentum**updates) + rows.prior * state.mu
        return SlangState(state.mu - rate * solve(U, d, force, xp), U, d, gbar, updates)

    def numbers(self, state: SlangState, xp: Any = np) -> Mapping[str, Array]:
        """Return the mean and the dense precision."""
        return {"mu": state.mu, "P": state.U @ state.U.T + xp.diag(state.d)}


def probabilities(theta: Array, rows: Rows, xp: Any = np) -> Array:
    """Probability of label 1 for each parameter sample and example, (S, M)."""
    return 1 / (1 + xp.exp(-(theta @ rows.x.T)))


def each(factors: Array, rows: Rows) -> Array:
    """Multiply each row by its factors, (S, M): (S M, D)."""
    return (factors[:, :, None] * rows.x).reshape(-1, rows.x.shape[1])


def solve(U: Array, d: Array, vectors: Array, xp: Any = np) -> Array:
    """(U U^T + diag(d))^-1 times each vector, (..., D), by Woodbury's formula."""
    scaled = U / d[:, None]
    inner = xp.eye(U.shape[1]) + U.T @ scaled
    return vectors / d - xp.linalg.solve(inner, (vectors @ scaled).T).T @ scaled.T


class LoopModel:
    """One model in training.

    Parameters
    ----------
    algorithm
        What trains it.
    rows
        All training rows.
    rate
        Learning rate of an update, by its number from 1.
    samples, batch_size
        Parameter samples S, and examples M of a minibatch, which are drawn with replacement.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        rows: Rows,
        rate: Callable[[int], float],
        samples: int,
        batch_size: int,
    ) -> None:
        self.algorithm, self.rows, self.rate, self.samples, self.batch_size = (
            algorithm,
            rows,
            rate,
            samples,
            batch_size,
        )
        self.state, self.updates = algorithm.start(rows.x.shape[1]), 0
        self.generator = np.random.default_rng(0)

    def train(self, updates: int) -> None:
        """Make some updates."""
        for _ in range(updates):
            self.updates += 1
            chosen = self.generator.integers(len(self.rows.y), size=self.batch_size)
            noise = self.generator.standard_normal(
                (self.samples, self.algorithm.normals(self.rows.x.shape[1]))
            )
            theta = self.algorithm.sample(self.state, noise)
            rate = self.rate(self.updates)
            self.state = self.algorithm.update(self.state, theta, self.rows.take(chosen), rate)
