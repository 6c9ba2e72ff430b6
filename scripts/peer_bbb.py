"""Bayes by Backprop on yacht in plain PyTorch, written from the code of the SLANG paper alone.

``python scripts/peer_bbb.py --rate 0.01`` trains a network of 50 units on the 20 published splits with fixed noise and
prior precisions, and prints the mean and standard error of the joint NLL and of the RMSE, both in target units. It
shares nothing with the suite but the rows and the splits, and so tells whether a difference from the print is one of
implementation: at the rate of that code's file, 0.02, it is as far from the print as `slang-uci` is.
"""

import argparse
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bdl.data import load_dataset, recipe_split

EPOCHS, BATCH, SAMPLES, TEST_SAMPLES = 120, 10, 4, 20
HIDDEN = 50
BIAS_PRECISION = 1e-6


class MeanField:
    """Weights w1, biases b1, weights w2 and bias b2, each normal and independent."""

    def __init__(self, inputs: int, prior_precision: float) -> None:
        shapes = [(HIDDEN, inputs), (HIDDEN,), (1, HIDDEN), (1,)]
        self.prior_precisions = [prior_precision, BIAS_PRECISION] * 2
        self.means = [torch.zeros(shape, requires_grad=True) for shape in shapes]
        self.rhos = [torch.full(shape, -1.0, requires_grad=True) for shape in shapes]

    def sample_outputs(self, x: Tensor) -> Tensor:
        """Return the outputs of one draw of the parameters, (N,)."""
        draw = [
            mean + functional.softplus(rho) * torch.randn_like(mean)
            for mean, rho in zip(self.means, self.rhos, strict=True)
        ]
        hidden = torch.relu(functional.linear(x, draw[0], draw[1]))
        return functional.linear(hidden, draw[2], draw[3]).squeeze(1)

    def divergence(self) -> Tensor:
        """Return the Kullback-Leibler divergence from the prior, nats."""
        total = torch.zeros(())
        for alpha, mean, rho in zip(self.prior_precisions, self.means, self.rhos, strict=True):
            sigma = functional.softplus(rho)
            total = total + 0.5 * (alpha * (mean**2 + sigma**2) - 1 - math.log(alpha)).sum()
            total = total - torch.log(sigma).sum()
        return total


def score_split(
    split: int, rate: float, noise_precision: float, prior: float
) -> tuple[float, float]:
    """Train on a split, and return its joint NLL (nats a test row) and RMSE."""
    dataset, rows = load_dataset("yacht"), recipe_split(308, split)
    x, y = (torch.tensor(values, dtype=torch.float32) for values in (dataset.x, dataset.y))
    x_train, y_train, x_test, y_test = x[rows.train], y[rows.train], x[rows.test], y[rows.test]
    centre, scale = x_train.mean(0), x_train.std(0)
    mean, deviation = y_train.mean(), y_train.std()
    inputs, targets = (x_train - centre) / scale, (y_train - mean) / deviation
    precision = noise_precision * float(deviation) ** 2
    torch.manual_seed(123 + split)
    posterior = MeanField(x.shape[1], prior)
    optimizer = torch.optim.Adam([*posterior.means, *posterior.rhos], lr=rate, betas=(0.9, 0.99))
    for _ in range(EPOCHS):
        order = torch.randperm(len(targets))
        for start in range(0, len(targets), BATCH):
            batch = order[start : start + BATCH]
            fits = []
            for _ in range(SAMPLES):
                errors = targets[batch] - posterior.sample_outputs(inputs[batch])
                fits.append((-0.5 * precision * errors**2).mean())
            loss = posterior.divergence() / len(targets) - torch.stack(fits).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        tested = (x_test - centre) / scale
        outputs = torch.stack([posterior.sample_outputs(tested) for _ in range(TEST_SAMPLES)])
    predictions = outputs * deviation + mean
    rmse = float(((predictions.mean(0) - y_test) ** 2).mean().sqrt())
    log_densities = -0.5 * noise_precision * (predictions - y_test) ** 2
    log_densities = log_densities + 0.5 * math.log(noise_precision / (2 * math.pi))
    joint = torch.logsumexp(log_densities.sum(1), 0) - math.log(TEST_SAMPLES)
    return -float(joint) / len(y_test), rmse


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate (0.02)")
    parser.add_argument("--noise-precision", type=float, default=0.549, help="(0.549)")
    parser.add_argument("--prior-precision", type=float, default=1.0, help="(1)")
    parser.add_argument("--splits", type=int, default=20, help="the first of them (20)")
    options = parser.parse_args(arguments)
    scores = torch.tensor(
        [
            score_split(split, options.rate, options.noise_precision, options.prior_precision)
            for split in range(options.splits)
        ]
    )
    errors = scores.std(0, correction=0) / math.sqrt(options.splits)
    for name, score, error in zip(("joint NLL", "RMSE"), scores.mean(0), errors, strict=True):
        print(f"{name}: {score:.3f} ± {error:.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
