"""Components by name: settings checked against the dataclass, defaults filled in, built on request."""

import pickle

import pytest

from bdl.errors import InputError
from bdl.methods.vifa import Vifa
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Mlp
from bdl.spec.components import MethodComponent, ModelComponent

OWN = """
from dataclasses import dataclass
from bdl.errors import InputError

@dataclass(frozen=True)
class Own:
    size: int
    even: int = 2
    def dim(self, d_in, d_out):
        return self.size
    def bias_mask(self, d_in, d_out):
        return None
    def initial(self, noise, d_in, d_out):
        return noise
    def __post_init__(self):
        if self.even % 2:
            raise InputError(f"even is {self.even}; give an even number")

class Plain:
    pass

@dataclass(frozen=True)
class Half:
    bias_mask: int = 0
"""


def test_build(load, text):
    entry = load(text).entries["searched"]
    assert entry.method.build() == Vifa(latent_dim=2)
    assert type(entry.method.build()) is Vifa
    assert entry.model.build() == Mlp(hidden=(50,))
    assert entry.likelihood.build() == Gaussian()
    assert pickle.loads(pickle.dumps(entry)) == entry


def test_settings_are_resolved():
    component = MethodComponent.model_validate({"name": "vifa", "max_grad_norm": 3, "lr_factors": [1, 2, 3]})
    assert component.settings == {
        "latent_dim": 1,
        "gradients_per_update": 4,
        "max_grad_norm": 3.0,
        "optimizer": "adam",
        "lr_factors": [1.0, 2.0, 3.0],
        "initial_scale": 0.0,
        "initial_std": 1.0,
    }
    assert component.model_dump() == {"name": "vifa", **component.settings}
    assert component.build() == Vifa(max_grad_norm=3.0, lr_factors=(1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"name": "vfia"}, "entries.searched.method: unknown method 'vfia': did you mean vifa or vadam?"),
        ({}, "entries.searched.method: should be a mapping with a name, one of: vifa"),
        ("vifa", "entries.searched.method: should be a mapping with a name, one of: vifa"),
        (
            {"name": "vifa", "rank": 1, "latent": 2},
            "entries.searched.method: unknown setting of method 'vifa' 'rank'; allowed: initial_scale, latent_dim,",
        ),
        (
            {"name": "vifa", "latent_dim": 0},
            "method.latent_dim: Input should be greater than or equal to 1 (got 0)",
        ),
        ({"name": "vifa", "latent_dim": 1.0}, "method.latent_dim: Input should be a valid integer (got 1.0)"),
        (
            {"name": "vifa", "latent_dim": True},
            "method.latent_dim: Input should be a valid integer (got true)",
        ),
        (
            {"name": "vifa", "optimizer": "rms"},
            "method.optimizer: Input should be 'sgd' or 'adam' (got \"rms\")",
        ),
        ({"name": "vifa", "lr_factors": [1, 2]}, "method.lr_factors.2: is missing"),
        ({"name": "vifa", "latent_dim": 0, "optimizer": "rms"}, "(got 0) (and 1 more)"),
        ({"name": "no_such_module:Thing"}, "cannot import 'no_such_module'"),
        ({"name": "bdl.methods.vifa:Thing"}, "bdl.methods.vifa defines no 'Thing'"),
        ({"name": "bdl.methods:METHODS"}, "method 'bdl.methods:METHODS' is not a dataclass"),
    ],
)
def test_refusals(load, content, method, message):
    content["entries"]["searched"]["method"] = method
    with pytest.raises(InputError) as caught:
        load(content)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_component_without_settings(load, content):
    content["entries"]["fixed"]["likelihood"]["hidden"] = [3]
    with pytest.raises(InputError, match="unknown setting of likelihood 'bernoulli' 'hidden'; allowed: none"):
        load(content)


def test_component_of_a_file(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN, "utf-8")
    component = ModelComponent.model_validate({"name": f"{path}:Own", "size": 3})
    assert component.settings == {"size": 3, "even": 2}
    assert component.build().size == 3
    assert pickle.loads(pickle.dumps(component)).build().size == 3
    with pytest.raises(ValueError, match=r"size\n.*required"):
        ModelComponent.model_validate({"name": f"{path}:Own"})
    with pytest.raises(ValueError, match="even is 3; give an even number"):
        ModelComponent.model_validate({"name": f"{path}:Own", "size": 1, "even": 3})
    with pytest.raises(ValueError, match="is not a dataclass"):
        ModelComponent.model_validate({"name": f"{path}:Plain"})
    with pytest.raises(ValueError, match=r"Half' lacks dim, initial; see bdl\.models\.base:Model"):
        ModelComponent.model_validate({"name": f"{path}:Half"})


def test_a_setting_that_is_gone_may_stand_in_stored_specs_at_its_default():
    bare = MethodComponent.model_validate({"name": "bbb"})
    assert (
        MethodComponent.model_validate({"name": "bbb", "local_reparametrisation": False, "optimizer": "adam"}) == bare
    )
    with pytest.raises(ValueError, match="unknown setting of method 'bbb'"):
        MethodComponent.model_validate({"name": "bbb", "local_reparametrisation": True})
