"""Peer: VIFA for one model at a time, in the PyTorch that one writes by hand.

Leaf tensors, `loss.backward()`, `torch.optim.Adam` and the global generator. The gradients come
from autograd of the negative ELBO, not from the formulas of `bdl.methods.vifa`, which makes the
comparison a test of both.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as nn
from torch import Tensor

from bdl.methods.optim import DescentState
from bdl.methods.vifa import Vifa
from peers.workload import BATCH_SIZE, Setting


class LoopModel:
    """One model in training.

    Parameters
    ----------
    method
        Settings of VIFA.
    state
        Where to start: the state of one trial.
    setting
        Hyper-parameters of the trial, scalars.
    x, y
        All data as the trial sees them, (n, d) and (n,).
    together
        Put the minibatches of an update into one loss, rather than add up their gradients one
        after the other.
    """

    def __init__(
        self,
        method: Vifa,
        state: DescentState,
        setting: Setting[Tensor],
        x: Tensor,
        y: Tensor,
        *,
        together: bool,
    ) -> None:
        self.method, self.x, self.y, self.together = method, x, y, together
        self.lr, self.alpha, self.precision, self.n = (float(value) for value in setting)
        self.params = {
            name: value.clone().requires_grad_() for name, value in state.params.items()
        }
        self.optimizer = torch.optim.Adam(self.params.values(), lr=self.lr)
        for name, value in self.params.items():
            self.optimizer.state[value] = {
                "step": state.optim.updates.clone(),
                "exp_avg": state.optim.first[name].clone(),
                "exp_avg_sq": state.optim.second[name].clone(),
            }

    def train(self, rows: Tensor, epochs: int) -> None:
        """Train on some rows, shuffled every epoch.

        Incomplete minibatches and updates are dropped.
        """
        batches = self.method.gradients_per_update
        for _ in range(epochs):
            order = rows[torch.randperm(len(rows))]
            for chosen in torch.split(order, batches * BATCH_SIZE):
                if len(chosen) == batches * BATCH_SIZE:
                    h = torch.randn(batches, self.method.latent_dim)
                    z = torch.randn(batches, len(self.params["c"]))
                    self.update(chosen.view(batches, BATCH_SIZE), h, z)

    def update(self, rows: Tensor, h: Tensor, z: Tensor) -> None:
        """Make one update from L minibatches: row numbers (L, M), noise h (L, K) and z (L, D)."""
        size = len(h) if self.together else 1
        self.optimizer.zero_grad()
        for part in zip(*(torch.split(each, size) for each in (rows, h, z)), strict=True):
            loss = self._negative_elbo(*part) * size / len(h)
            loss.backward()  # type: ignore[no-untyped-call]
        for value in self.params.values():
            torch.nn.utils.clip_grad_norm_(value, self.method.max_grad_norm)
        self.optimizer.step()

    def numbers(self) -> Mapping[str, Tensor]:
        """Parameters and Adam's moments by name, to be compared."""
        found: dict[str, Tensor] = {}
        for name, value in self.params.items():
            moments = self.optimizer.state[value]
            found |= {name: value.detach(), f"first {name}": moments["exp_avg"]}
            found[f"second {name}"] = moments["exp_avg_sq"]
        return found

    def _negative_elbo(self, rows: Tensor, h: Tensor, z: Tensor) -> Tensor:
        """Average over the minibatches given, but for constants."""
        c, factors, gamma = self.params["c"], self.params["F"], self.params["gamma"]
        thetas = c + h @ factors.T + (0.5 * gamma).exp() * z
        errors = [
            nn.mse_loss(self._network(theta, x), y)
            for theta, x, y in zip(thetas, self.x[rows], self.y[rows], strict=True)
        ]
        return (
            self._divergence_from_prior()
            + 0.5 * self.n * self.precision * torch.stack(errors).mean()
        )

    def _divergence_from_prior(self) -> Tensor:
        """KL(q || N(0, 1/alpha)) but for constants."""
        c, factors, gamma = self.params["c"], self.params["F"], self.params["gamma"]
        psi = gamma.exp()
        inner = torch.eye(factors.shape[1]) + factors.T @ (factors / psi.unsqueeze(1))
        log_det = torch.logdet(inner) + gamma.sum()
        return 0.5 * (
            self.alpha * (c.square().sum() + factors.square().sum() + psi.sum()) - log_det
        )

    def _network(self, theta: Tensor, x: Tensor) -> Tensor:
        """Evaluate the network with one hidden ReLU layer: (M, d) -> (M,)."""
        d_in = x.shape[1]
        hidden = (len(theta) - 1) // (d_in + 2)
        w1, b1, w2, b2 = torch.split(theta, [hidden * d_in, hidden, hidden, 1])
        activation = torch.relu(nn.linear(x, w1.view(hidden, d_in), b1))
        return nn.linear(activation, w2.view(1, hidden), b2).squeeze(1)
