"""Peers that train one network: PyTorch's Adam, IVON, bayesian-torch and numpyro, with one sample an update."""

from collections.abc import Callable, Sequence
from itertools import count, pairwise

import torch
from torch import Tensor, nn


class TorchLoop:
    """A network trained in a plain loop by PyTorch's Adam.

    Parameters
    ----------
    sizes
        Units of each layer; with one output the target is a number, otherwise a label.
    x, y
        Inputs (n, d), and targets or labels (n,).
    batch_size
        Rows of a minibatch; an epoch has as many as are whole.
    """

    def __init__(self, sizes: Sequence[int], x: Tensor, y: Tensor, batch_size: int) -> None:
        regression = sizes[-1] == 1
        self.x, self.y, self.batch_size = x, y if regression else y.long(), batch_size
        layers = [(self._layer(*pair), nn.ReLU()) for pair in pairwise(sizes)]
        self.net = nn.Sequential(*[module for layer in layers for module in layer][:-1])
        self.error = nn.functional.mse_loss if regression else nn.functional.cross_entropy
        self.rate = 0.01 if regression else 0.001
        self.optimizer = self._optimizer()

    def epoch(self) -> None:
        """Train on all rows once."""
        updates = len(self.y) // self.batch_size
        for rows in torch.randperm(len(self.y))[: updates * self.batch_size].view(
            updates, self.batch_size
        ):
            self._step(self.x[rows], self.y[rows])

    def _layer(self, d_in: int, d_out: int) -> nn.Module:
        return nn.Linear(d_in, d_out)

    def _optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.net.parameters(), lr=self.rate)

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.error(self.net(x).squeeze(1), y)

    def _step(self, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad()
        self._loss(x, y).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


class Ivon(TorchLoop):
    """The same loop by IVON, a mean-field method."""

    def _optimizer(self) -> torch.optim.Optimizer:
        from ivon import IVON

        found: torch.optim.Optimizer = IVON(self.net.parameters(), lr=self.rate, ess=len(self.y))
        return found

    def _step(self, x: Tensor, y: Tensor) -> None:
        with self.optimizer.sampled_params(train=True):  # type: ignore[attr-defined]
            self.optimizer.zero_grad()
            self._loss(x, y).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


class BayesianTorch(TorchLoop):
    """The same loop with bayesian-torch's mean-field layers, trained on the evidence lower bound by Adam."""

    def _layer(self, d_in: int, d_out: int) -> nn.Module:
        from bayesian_torch.layers import LinearReparameterization

        layer: nn.Module = LinearReparameterization(d_in, d_out)
        layer.dnn_to_bnn_flag = True  # type: ignore[assignment]  # it returns the output alone
        return layer

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        from bayesian_torch.models.dnn_to_bnn import get_kl_loss

        divergence: Tensor = get_kl_loss(self.net)
        return super()._loss(x, y) + divergence / len(self.y)


def laplace_torch(net: nn.Module, x: Tensor, y: Tensor, curvature: str, noise_sd: float) -> object:
    """Approximate the posterior of a trained network by laplace-torch, with a prior precision of 1.

    Parameters
    ----------
    net
        The network, (n, d) to (n, 1).
    x, y
        Inputs (n, d) and targets (n,), which it gets in one minibatch.
    curvature
        ``ggn`` or ``kronecker``.
    noise_sd
        Standard deviation of the targets about the network.
    """
    from laplace import Laplace
    from torch.utils.data import DataLoader, TensorDataset

    structure = {"ggn": "full", "kronecker": "kron"}[curvature]
    given = {"hessian_structure": structure, "sigma_noise": noise_sd, "prior_precision": 1.0}
    found = Laplace(net, "regression", subset_of_weights="all", **given)
    found.fit(DataLoader(TensorDataset(x, y.unsqueeze(1)), batch_size=len(y)))
    return found


def numpyro_epoch(guide: str, x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return what trains a mean-field or low-rank Gaussian for an epoch.

    Inputs (n, 13), targets (n,).
    """
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoDiagonalNormal, AutoLowRankMultivariateNormal

    inputs, targets = jnp.asarray(x.numpy()), jnp.asarray(y.numpy())
    n, d_in, dim, batch_size = *inputs.shape, 15 * 50 + 1, 10
    updates = n // batch_size

    def model(x, y):  # type: ignore[no-untyped-def]
        theta = numpyro.sample("theta", dist.Normal(0, 1).expand([dim]).to_event(1))
        hidden = jax.nn.relu(
            x @ theta[: d_in * 50].reshape(d_in, 50) + theta[d_in * 50 : (d_in + 1) * 50]
        )
        mean = hidden @ theta[(d_in + 1) * 50 : -1] + theta[-1]
        with numpyro.plate("rows", n, subsample_size=len(y)):
            numpyro.sample("y", dist.Normal(mean, 0.3), obs=y)

    q = (
        AutoDiagonalNormal(model)
        if guide == "diagonal"
        else AutoLowRankMultivariateNormal(model, rank=1)
    )
    svi = SVI(model, q, numpyro.optim.Adam(0.01), Trace_ELBO())
    state = svi.init(jax.random.PRNGKey(0), inputs[:batch_size], targets[:batch_size])

    @jax.jit
    def train(state, key):  # type: ignore[no-untyped-def]
        order = jax.random.permutation(key, n)[: updates * batch_size].reshape(-1, batch_size)
        return jax.lax.scan(
            lambda now, rows: svi.update(now, inputs[rows], targets[rows]), state, order
        )[0]

    epochs = count()

    def epoch() -> None:
        nonlocal state
        state = jax.block_until_ready(train(state, jax.random.PRNGKey(next(epochs))))  # type: ignore[no-untyped-call]

    return epoch
