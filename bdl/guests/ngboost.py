"""Natural gradient boosting: trees that give each row a distribution of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor

from bdl.methods.guest import Guest, Train
from bdl.posteriors.predictive import MeanVariance, Predictive, Probabilities


@dataclass(frozen=True)
class NgBoost(Guest):
    """`ngboost` with its default trees, by the logarithmic score (Duan et al. 2020).

    Targets are normal, or classes.

    Parameters
    ----------
    trees
        Boosting steps.
    """

    trees: Annotated[int, Ge(1)] = 500

    self_tuned = True
    needs: ClassVar = {"ngboost": "bdl-bench[ngboost]"}
    hyper = ("learning_rate",)

    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> Predictive:
        import ngboost
        from ngboost.distns import k_categorical

        settings = {"n_estimators": self.trees, "learning_rate": hyper["learning_rate"]}
        settings |= {"random_state": seed, "verbose": False}
        if train.classes:
            classifier = ngboost.NGBClassifier(Dist=k_categorical(train.classes), **settings)
            classifier.fit(train.x, train.y.astype(int))
            return lambda x: Probabilities(classifier.predict_proba(x.numpy()))
        regressor = ngboost.NGBRegressor(**settings).fit(train.x, train.y)

        def predict(x: Tensor) -> MeanVariance:
            normal = regressor.pred_dist(x.numpy())
            return MeanVariance(normal.loc, normal.scale**2)

        return predict
