"""One fit as its scores see it: everything is computed when it is asked for, and once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from bdl.errors import InputError
from bdl.metrics.predictions import Draws, Predictions, as_tensors, evaluate_outputs, predict
from bdl.metrics.targets import (
    Examples,
    build_answer_distribution,
    build_target_distribution,
    query_rows,
    restore_outputs,
)
from bdl.models.problem import Problem
from bdl.posteriors import Empirical, FullGaussian
from bdl.posteriors.base import Posterior
from bdl.posteriors.empirical import Point
from bdl.posteriors.predictive import Outputs, is_predictive
from bdl.posteriors.tensors import as_type, copy_tensors
from bdl.references.base import Truth

_CPU = torch.device("cpu")

At = Literal["samples", "mean"]
"""Parameters that predict: samples of the posterior, or its mean alone."""


class Functions(NamedTuple):
    """Samples of outputs at rows, original units, float64, on the CPU.

    N counts every output of every row.
    """

    ours: Tensor
    """Of the posterior, (S, n)."""
    truth: Tensor
    """Of the reference, in independent groups: its chains, or draws of a Gaussian in closed form,
    (G, T, n).
    """


_GROUPS = 4
"""Groups of draws from a reference in closed form, S each."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A fit with its data, of which every score is a function.

    Parameters
    ----------
    posterior
        Of one trial, as stored.
    problem
        What it is a posterior of; None where observations come from a stream.
    hyper
        Hyper-parameters by name, original units.
    test, training
        Give the rows that are predicted, and those that the fit has seen.
    samples
        Posterior samples of a prediction, S.
    key
        Of the trial's random stream "predict", int32, (2,).
    buffers
        Running statistics of the model after the fit, by name.
    truth
        Gives the reference posterior; None if there is none.
    predicted
        The predictions of the test rows, where they are made already.
    generating
        Parameters that the targets were drawn with, float64, (D,); None if they are not known.
    fitted_hyper
        Hyper-parameters of the fit, where predictions have others; None where they are `hyper`.
    """

    posterior: Posterior
    problem: Problem | None
    hyper: Mapping[str, float]
    test: Callable[[], Examples]
    training: Callable[[], Examples]
    samples: int
    key: Tensor
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    truth: Callable[[], Truth | None] = lambda: None
    predicted: Predictions | None = None
    generating: Tensor | None = None
    fitted_hyper: Mapping[str, float] | None = None

    def copy(self) -> "Evaluation":
        """Return an evaluation of the same fit that shares no tensor of it, nor of its data.

        What this one has computed is copied, and rows and reference are computed once for both.
        """
        return replace(
            self,
            posterior=copy_tensors(self.posterior),
            hyper=dict(self.hyper),
            test=lambda: copy_tensors(self.tested),
            training=lambda: copy_tensors(self.trained),
            buffers=copy_tensors(dict(self.buffers)),
            truth=lambda: copy_tensors(self._computed_truth),
            predicted=copy_tensors(vars(self).get("predictions", self.predicted)),
            generating=copy_tensors(self.generating),
        )

    @cached_property
    def _computed_truth(self) -> Truth | None:
        return self.truth()

    @cached_property
    def tested(self) -> Examples:
        """The rows that are predicted."""
        return self.test()

    @cached_property
    def trained(self) -> Examples:
        """The rows that the fit has seen."""
        return self.training()

    @cached_property
    def predictions(self) -> Predictions:
        """Predictions of the test rows, on the CPU.

        `InputError` if there are none, or observations come from a stream.
        """
        predictions = self.predicted or self._predict_test_rows()
        # float64: sums over thousands of rows would lose the digits that tables show
        return as_type(predictions, torch.float64, _CPU)

    def _predict_test_rows(self) -> Predictions:
        if self.problem is not None and not len(self.tested.y):
            raise InputError(
                "no rows test this fit: score others by dataclasses.replace(evaluation, test=...)"
            )
        return self.predict(self.tested, Draws(self.samples, self.key))

    @cached_property
    def components(self) -> Distribution:
        """Distributions of the test targets under each of the samples that `predictions` averages.

        As `members`.
        """
        return self.members(self.tested, Draws(self.samples, self.key))

    def at(self, where: At) -> "Evaluation":
        """Return what a score is to look at: this evaluation, or that of the posterior's mean
        alone.
        """
        return self._at_mean if where == "mean" else self

    @cached_property
    def _at_mean(self) -> "Evaluation":
        if is_predictive(self.posterior):
            raise InputError("the fit has no parameters, and so no mean: leave this score out")
        # predictions at hand are those of samples
        return replace(
            self, posterior=Point(as_type(self.posterior, torch.float32).mean()), predicted=None
        )

    @property
    def as_fitted(self) -> "Evaluation":
        """The evaluation under the hyper-parameters of the fit, for scores of its density."""
        if self.fitted_hyper is None:
            return self
        return replace(self, hyper=self.fitted_hyper, fitted_hyper=None, predicted=None)

    @cached_property
    def precise(self) -> Posterior:
        """The posterior, float64, on the CPU."""
        return as_type(self.posterior, torch.float64, _CPU)

    @cached_property
    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean (D,) and covariance (D, D) of the posterior, float64, on the CPU."""
        return self.precise.mean(), self.precise.covariance()

    @cached_property
    def reference(self) -> Truth:
        """The reference posterior; `InputError` if there is none."""
        truth = self._computed_truth
        if truth is None:
            raise InputError(
                "distances need the true posterior: give the entry a reference, or leave "
                "the metric out"
            )
        return truth

    @property
    def function_rows(self) -> Examples:
        """Rows at which functions are compared: those that test, or train where none tests."""
        return self.tested if len(self.tested.y) else self.trained

    @cached_property
    def functions(self) -> Functions:
        """Outputs under the posterior and under the reference, by samples.

        `InputError` if there is no reference, it does not know all parameters or is a density
        that is not Gaussian, or observations come from a stream.
        """
        truth, rows = self.reference, self.function_rows
        if truth.chains is not None:
            chains = truth.chains.flatten(0, 1)
            exact: Posterior = Empirical(chains)
            groups, draws = len(truth.chains), Draws(len(chains), self.key)
        elif truth.log_density is not None:
            raise InputError(
                "the reference is no Gaussian, and not drawn from: use distances of parameters"
            )
        elif len(truth.covariance) == len(truth.mean):
            # a step of their own: with the draws of the posterior both samples would move
            # together, and look nearer to each other than they are
            groups, draws = _GROUPS, Draws(_GROUPS * self.samples, self.key, step=1)
            exact = FullGaussian.from_covariance(truth.mean, truth.covariance)
        else:
            raise InputError(
                "the reference knows no covariance of some parameters: leave out "
                "distances of functions"
            )
        ours = self.outputs(rows, Draws(self.samples, self.key)).flatten(1)
        samples = self.outputs(rows, draws, exact)
        return Functions(ours, samples.reshape(groups, len(samples) // groups, -1))

    @property
    def has_sampling_error(self) -> bool:
        """Whether another key gives other samples: the posterior is no set of up to S vectors."""
        if is_predictive(self.posterior):
            return False
        atoms: Tensor | None = getattr(self.posterior, "atoms", None)
        return atoms is None or len(atoms) > self.samples

    @property
    def model(self) -> Problem:
        """The problem; `InputError` if observations come from a stream."""
        if self.problem is None:
            raise InputError(
                "a stream has no rows to predict: leave out metrics of predictions, or "
                "use a data set"
            )
        return self.problem

    def predict(self, examples: Examples, draws: Draws) -> Predictions:
        """Predict any rows, on the device of the posterior; errors as in `predictions`."""
        return predict(
            self.model,
            self.posterior,
            examples,
            as_tensors(self.hyper),
            self.buffers,
            draws,
            self._training_inputs,
        )

    def members(self, examples: Examples, draws: Draws) -> Distribution:
        """Return the distributions of targets under each sample, original units, on the CPU, (n,
        S).

        Arguments and errors are those of `predict`.
        """
        problem, hyper = self.model, as_tensors(self.hyper)
        if is_predictive(self.posterior):
            prediction = query_rows(problem, self.posterior, examples)
            return build_answer_distribution(
                problem,
                prediction.map_fields(lambda value: value.transpose(0, 1)),
                examples,
                hyper,
            )
        return build_target_distribution(
            problem, self.outputs(examples, draws).movedim(0, 1), hyper
        )

    def outputs(
        self,
        examples: Examples,
        draws: Draws,
        posterior: Posterior | None = None,
        vectors: Tensor | None = None,
    ) -> Tensor:
        """Evaluate the model at S samples of the posterior of the fit, or of another one, for n
        rows; or at `vectors` that were drawn from it before, (S, D).

        Outputs are in original units, float64, on the CPU, (S, n, d_out). `InputError` as from
        `predictions`, or if the posterior has several modes that share running statistics, or
        predicts by itself, and not by outputs.
        """
        source = self.posterior if posterior is None else posterior
        if is_predictive(source):
            prediction = query_rows(self.model, source, examples)
            if not isinstance(prediction, Outputs):
                raise InputError(
                    "the method left predictions, and no outputs of the model: leave the "
                    "metric out"
                )
            return restore_outputs(self.model, prediction, examples)
        batches = evaluate_outputs(
            self.model, source, examples, self.buffers, draws, self._training_inputs, vectors
        )
        samples = []
        for pieces in batches:
            samples.append(torch.cat([outputs for _, outputs in pieces], 1))
        return torch.cat(samples).to(_CPU)

    def _training_inputs(self) -> Tensor:
        return self.trained.x
