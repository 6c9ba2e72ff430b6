"""Bayesian ridge regression of scikit-learn, with prior and noise chosen by the evidence."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from bdl.methods.guest import Guest, Train
from bdl.posteriors.predictive import MeanVariance, Predictive


@dataclass(frozen=True)
class BayesianRidge(Guest):
    """`sklearn.linear_model.BayesianRidge` (MacKay 1992; Tipping 2001)."""

    self_tuned = True
    needs_numbers = True

    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> Predictive:
        from sklearn.linear_model import BayesianRidge

        model = BayesianRidge().fit(train.x, train.y)

        def predict(x: Tensor) -> MeanVariance:
            mean, deviation = model.predict(x.numpy(), return_std=True)
            return MeanVariance(mean, deviation**2)

        return predict
