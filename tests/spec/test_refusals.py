"""What a file may not say, and the one line that answers it."""

import pytest

from bdl.errors import InputError

FIXED, SEARCHED = "entries.fixed", "entries.searched"
TRAINING, METHOD, SEARCH = f"{FIXED}.training", f"{SEARCHED}.method", f"{SEARCHED}.search"
RATE = f"{SEARCH}.space.learning_rate"
YACHT, ALL = f"{SEARCHED}.by_dataset.yacht", "by_dataset.yacht"
FA = {"name": "fa", "dim": 20, "top": 2}
PAPER = {"paper": "a", "tables": ["Table 1"], "task": "t", "methods": {"fixed": "m"}}
CLAIM = {
    "text": "t",
    "source": "s",
    "metric": "nmll",
    "less": {"entry": "fixed"},
    "than": {"entry": "fixed"},
}
TOO_SMALL = "Input should be greater than or equal to"

FIELDS = [
    *((field, 0, f"{field}: {TOO_SMALL} 1 (got 0)") for field in ("splits", "evaluation.samples")),
    ("seed", -1, f"seed: {TOO_SMALL} 0 (got -1)"),
    ("seed", True, "seed: Input should be a valid integer (got true)"),
    ("splits", 2.0, "splits: Input should be a valid integer (got 2.0)"),
    (
        "name",
        "No Slug",
        "name: String should match pattern '^[a-z0-9][a-z0-9_-]*$' (got \"No Slug\")",
    ),
    ("title", "", 'title: String should have at least 1 character (got "")'),
    ("titel", "x", "unknown field 'titel' (did you mean title?); allowed: name, title, "),
    ("profile", "x", "profile is not a field of the file: remove it"),
    ("profiles", None, "profiles: should be a mapping (got null)"),
    ("baseline", "fxied", "baseline: unknown entry 'fxied': did you mean fixed?"),
    ("preparation.rows", {"yacht": 0}, f"preparation.rows.yacht: {TOO_SMALL} 1"),
    (
        "preparation.split",
        "last",
        "preparation.split: Input should be 'published', 'first', 'other-first', 'half', ",
    ),
]
DATASETS = [
    ([], ": should not be empty"),
    ("yacht", ': should be a list (got "yacht")'),
    (["yacht", "boston", "yacht"], ": 'yacht' comes twice: remove one"),
    ([FA | {"top": top, "label": "same"} for top in (1, 2)], ": 'same' comes twice: remove one"),
    ([{"name": "fa", "dim": 20}], ".0.top: is missing"),
    (["fa"], ".0.dim: is missing"),
    ([FA | {"dim": 5}], f".0.dim: {TOO_SMALL} 11 (got 5)"),
    (
        [{"name": "fa", "rank": 5}],
        ".0: unknown setting of dataset 'fa' 'rank'; allowed: dim, top, scaling,",
    ),
    ([{"name": "yacht", "dim": 5}], ".0: dataset 'yacht' has no settings: remove dim"),
    ([{"name": "yatch"}], ".0: unknown dataset 'yatch': did you mean yacht"),
    ([{"dim": 5}], ".0: should be a name, or a mapping with a name and settings"),
    ([3], ".0: should be a name, or a mapping with a name and settings"),
    ([FA | {"label": 3}], ".0: label: should be text (got 3)"),
]
METRICS = [
    (["nmll", "nmll"], ": 'nmll' comes twice: remove one"),
    (["rsme"], ".0: unknown metric 'rsme': did you mean rmse"),
    ([{"name": "ece", "bins": 0}], f".0.bins: {TOO_SMALL} 1 (got 0)"),
    ([{"name": "ece", "label": "error"}], ".0: label: 'error' should be ece, or begin with ece_"),
]
METHODS = [
    ({"name": "vfia"}, ": unknown method 'vfia': did you mean vifa or vadam?"),
    ({}, ": should be a mapping with a name, one of: vifa"),
    ("vifa", ": should be a mapping with a name, one of: vifa"),
    (
        {"name": "vifa", "rank": 1, "latent": 2},
        ": unknown setting of method 'vifa' 'rank'; allowed: initial_scale, ",
    ),
    ({"name": "vifa", "latent_dim": 0}, f".latent_dim: {TOO_SMALL} 1 (got 0)"),
    (
        {"name": "vifa", "latent_dim": 1.0},
        ".latent_dim: Input should be a valid integer (got 1.0)",
    ),
    (
        {"name": "vifa", "latent_dim": True},
        ".latent_dim: Input should be a valid integer (got true)",
    ),
    (
        {"name": "vifa", "optimizer": "rms"},
        ".optimizer: Input should be 'sgd' or 'adam' (got \"rms\")",
    ),
    ({"name": "vifa", "lr_factors": [1, 2]}, ".lr_factors.2: is missing"),
    (
        {"name": "vifa", "latent_dim": 0, "optimizer": "rms"},
        f".latent_dim: {TOO_SMALL} 1 (got 0) (and 1 more)",
    ),
    ({"name": "no_such_module:Thing"}, ": method: cannot import 'no_such_module' (No module"),
]
ENTRIES = [
    ("entries", {}, "entries: should not be empty"),
    ("entries", {"A.b": {}}, "entries.A.b: String should match pattern"),
    (
        f"{FIXED}.likelihood.hidden",
        [3],
        f"{FIXED}.likelihood: unknown setting of likelihood 'bernoulli' 'hidden'; all",
    ),
    (
        f"{FIXED}.prior.bias_precision",
        0,
        f"{FIXED}.prior.bias_precision: Input should be greater than 0",
    ),
    (f"{FIXED}.hyper", 3, f"{FIXED}.hyper: should be a mapping (got 3)"),
    (
        f"{FIXED}.hyper",
        {},
        f"{FIXED}: no value for learning_rate, prior_precision: add to hyper or to search.space",
    ),
    (f"{FIXED}.hyper.prior_precision", -0.5, f"{FIXED}.hyper.prior_precision: {TOO_SMALL} 0"),
    (
        f"{FIXED}.likelihood",
        {"name": "gaussian"},
        f"{FIXED}: no value for noise_precision: add to hyper or to search.",
    ),
    (
        f"{SEARCHED}.reference",
        {"name": "conjugate"},
        f"{SEARCHED}: reference 'conjugate' is the posterior under given values of "
        "prior_precision, noise_precision, which the search chooses: move them to hyper",
    ),
    (
        f"{SEARCHED}.hyper",
        {"learning_rate": 0.1},
        f"{SEARCHED}: hyper-parameter 'learning_rate' is given twice (hyper, search.space, from_reference): keep one",
    ),
    (
        "entries.refitted",
        {
            "model": {"name": "linear"},
            "likelihood": {"name": "gaussian"},
            "method": {"name": "vifa"},
            "training": {"epochs": 1, "batch_size": 10},
            "reference": {"name": "bayesian-ridge"},
            "from_reference": ["prior_precision", "noise_precision"],
            "search": {
                "sampler": "grid",
                "folds": 1,
                "refit": True,
                "metric": "nmll",
                "grid": {"learning_rate": [0.1, 0.2]},
            },
        },
        "entries.refitted: search.refit: the reference of from_reference has the validation rows",
    ),
    (TRAINING, None, f"{FIXED}: training is missing: give epochs and batch_size"),
    (TRAINING, {"epochs": 1}, f"{TRAINING}.batch_size: is missing"),
    (f"{TRAINING}.epoch", 1, f"{TRAINING}: unknown field 'epoch' (did you mean epochs?)"),
    *(
        (f"{TRAINING}.{field}", 0, f"{TRAINING}.{field}: {TOO_SMALL} 1 (got 0)")
        for field in ("epochs", "batch_size")
    ),
    (
        f"{TRAINING}.schedule",
        {"name": "dekay"},
        f"{TRAINING}.schedule: unknown rate 'dekay': did you mean decay",
    ),
    (
        f"{TRAINING}.schedule",
        3,
        f"{TRAINING}.schedule: should be a mapping with a name, one of: constant, decay",
    ),
    (
        f"{TRAINING}.schedule.c.name",
        "dekay",
        f"{TRAINING}.schedule.c: unknown rate 'dekay': did you mean decay",
    ),
    (
        f"{TRAINING}.schedule.d.name",
        "decay",
        f"{FIXED}: training: unknown group of parameters 'd'",
    ),
    (
        f"{TRAINING}.incomplete",
        "keep",
        f"{FIXED}: training: incomplete minibatches cannot be kept where an update tak",
    ),
    (
        f"{TRAINING}.sampling",
        "both",
        f"{TRAINING}.sampling: Input should be 'without_replacement' or 'with_replaceme",
    ),
    (
        f"{TRAINING}.dtype",
        "float16",
        f"{TRAINING}.dtype: Input should be 'float32' or 'float64' (got \"float16\")",
    ),
]
SEARCHES = [
    *(
        (f"{SEARCH}.{name}", 0, f"{SEARCH}.{name}: {TOO_SMALL} 1 (got 0)")
        for name in ("trials", "folds", "startup")
    ),
    (
        f"{SEARCH}.sampler",
        "tpe",
        f"{SEARCH}.sampler: Input should be 'random', 'bayesian' or 'grid' (got",
    ),
    (
        f"{SEARCH}.penalty",
        float("inf"),
        f'{SEARCH}.penalty: Input should be a valid number (got ".inf")',
    ),
    (
        f"{SEARCH}.metric",
        "runtime",
        f"{SEARCH}.metric: 'runtime' cannot steer a search: choose one of",
    ),
    (f"{SEARCH}.space", {}, f"{SEARCH}: space: should not be empty, a random search needs it"),
    (f"{SEARCH}.sampler", "grid", f"{SEARCH}: grid: should not be empty, a grid search needs it"),
    (
        f"{SEARCH}.grid",
        {"learning_rate": [0.1]},
        f"{SEARCH}: grid: a random search does not use it; remove it",
    ),
    (
        f"{SEARCH}.space.noise_precison",
        {"low": 1, "high": 2},
        f"{SEARCHED}: unknown hyper-parameter 'noise_precison':",
    ),
    (
        f"{SEARCH}.sampler",
        "bayesian",
        f"{SEARCH}: startup: 5 evaluations at random are more than the 4 trials; lower startup or raise trials",
    ),
    (
        RATE,
        {"low": 0.02, "high": 0.01},
        f"{RATE}: range reversed: low 0.02 must be below high 0.01",
    ),
    (RATE, {"low": 0.02, "high": 0.02}, f"{RATE}: range empty: low 0.02 must be below high 0.02"),
    (f"{RATE}.low", -1, f"{RATE}.low: {TOO_SMALL} 0 (got -1)"),
    (f"{RATE}.low", 0, f"{RATE}: a log range needs low above 0"),
    (f"{RATE}.scale", "ln", f"{RATE}.scale: Input should be 'linear' or 'log' (got \"ln\")"),
]
CHANGES = [
    (
        YACHT,
        {"serch": {}},
        f"{YACHT}: unknown field 'serch' (did you mean search?); allowed: model, likelihood, prior",
    ),
    (YACHT, {"datasets": ["yacht"]}, f"{YACHT}: unknown field 'datasets'"),
    (YACHT, 3, f"{YACHT}: should be a mapping (got 3)"),
    (YACHT, {"training": None}, f"{YACHT}: training is missing"),
    (YACHT, {"method": {"rank": 1}}, f"{YACHT}.method: unknown setting of method 'vifa' 'rank'"),
    (
        f"{YACHT}.search.space.noise_precision.low",
        2,
        f"{YACHT}.search.space.noise_precision: range reversed",
    ),
    (
        f"{YACHT}.search.space.noise",
        {"low": 1, "high": 2},
        f"{YACHT}: unknown hyper-parameter 'noise'",
    ),
    (
        YACHT,
        {"search": None},
        f"{YACHT}: no value for learning_rate, prior_precision, noise_precision",
    ),
    (
        ALL,
        {"model": {"hiden": [3]}},
        f"{ALL}: no entry has 'model.hiden': correct it, or use the by_dataset",
    ),
    (ALL, {"model": {"name": "lin"}}, f"{ALL}: no entry has 'model.name'"),
    (ALL, {"hyper": {"noise_precision": 3}}, f"{ALL}: no entry has 'hyper.noise_precision'"),
    (ALL, {"datasets": ["yacht"]}, f"{ALL}: no entry has 'datasets'"),
    (ALL, {"evaluation": {"samples": 3}}, f"{ALL}: no entry has 'evaluation.samples'"),
    (ALL, 3, f"{ALL}: should be a mapping (got 3)"),
    (ALL, {"training": {"epochs": 0}}, f"{ALL}.training.epochs: {TOO_SMALL} 1"),
]
SWEEPS = [
    (
        {"modle.hidden": [1]},
        ": unknown field 'modle' (did you mean model?); allowed: model, likelihood",
    ),
    (
        {"model.hiden": [1]},
        ": model: unknown field 'hiden' (did you mean hidden?); allowed: name, ",
    ),
    ({"model.hidden.x": [1]}, ": model.hidden: unknown field 'x'; allowed: none"),
    ({"hyper.noise_precision": [1]}, ": hyper: unknown field 'noise_precision'"),
    ({"dataset.top": [1]}, ": dataset: unknown field 'top'; allowed: none"),
    (
        {"preparation.row": [1]},
        ": preparation: unknown field 'row' (did you mean rows?); allowed: split,",
    ),
    ({"by_dataset.yacht": [{}]}, ": unknown field 'by_dataset'"),
    ({"seed": [1]}, ": unknown field 'seed'"),
    ({"model.hidden": []}, ".model.hidden: should not be empty"),
    ({"model.hidden": 3}, ".model.hidden: should be a list (got 3)"),
    ({"model.hidden": [[3], [4], [3]]}, ".model.hidden: [3] comes twice: remove one"),
    ({"hyper.prior_precision": [1, 1.0]}, ".hyper.prior_precision: 1.0 comes twice: remove one"),
    (
        {"method.latent_dim": [1], "search.trials": [2, "x"]},
        ': at {"method.latent_dim":1,"search.trials":"x"}: entries.searched.search.trials: Input should be a valid int',
    ),
]
PAPERS = [
    ({"methods": {"fxied": "m"}}, ".methods: unknown entry 'fxied': did you mean fixed"),
    ({"tables": []}, ".tables: should not be empty"),
    ({"metrics": {"jnll": "m"}}, ".metrics.jnll: unknown metric 'jnll'"),
    ({"metrics": {"nmll": ""}}, ".metrics.nmll: String should have at least 1"),
]
NOTES = [
    ({"entry": "fxied", "text": "t"}, ".entry: unknown entry 'fxied': did you mean"),
    ({"metric": "ece_20", "text": "t"}, ".metric: unknown metric 'ece_20': did you mean ece"),
    ({"statistic": "mode", "text": "t"}, ".statistic: Input should be 'mean', 'med"),
    ({"verdict": "better", "text": "errata"}, ".verdict: Input should be 'print in error'"),
    ({"verdict": "print in error", "text": "t"}, ": verdict: 'print in error' needs a text"),
]
CLAIMS = [
    ({"than": {"entry": "fxied"}}, ": unknown entry 'fxied': did you mean"),
    ({"datasets": ["yatch"]}, ".datasets.0: unknown dataset 'yatch'"),
    ({"metric": "rmes"}, ": unknown metric 'rmes': did you mean rmse"),
    (
        {"less": {"entry": "fixed", "dataset": "yatch"}},
        ": unknown dataset 'yatch'",
    ),
    (
        {"less": {"entry": "fixed", "after": 5}},
        ": after: fixed records no scores during its fits: add a record",
    ),
    ({"times": 0}, ".times: Input should be greater than 0"),
    ({"at": {"dataset.rows": 5}}, ".at: unknown axis of the sweep 'dataset.rows'"),
    (
        {"less": {"entry": "fixed", "at": {"training.epochs": 5}}},
        ": at: only one side has 'training.epochs': give its value on the other, or for both",
    ),
]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        *(row for table in (FIELDS, ENTRIES, SEARCHES, CHANGES) for row in table),
        *(("datasets", value, f"datasets{message}") for value, message in DATASETS),
        *(("metrics", value, f"metrics{message}") for value, message in METRICS),
        *((METHOD, value, f"{METHOD}{message}") for value, message in METHODS),
        *(("sweep", value, f"sweep{message}") for value, message in SWEEPS),
        *(("papers", [PAPER | change], f"papers.0{message}") for change, message in PAPERS),
        *(("notes", [note], f"notes.0{message}") for note, message in NOTES),
        *(("claims", [CLAIM | change], f"claims.0{message}") for change, message in CLAIMS),
    ],
)
def test_what_is_wrong_is_told_in_a_line_with_its_place(load, content, put, path, value, message):
    put(path, value)
    with pytest.raises(InputError) as caught:
        load(content)
    assert f"small.yaml: {message}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_told(load, content):
    del content["splits"]
    with pytest.raises(InputError, match=r"small\.yaml: splits: is missing$"):
        load(content)


def test_several_problems_are_counted(load, content):
    content |= {"seed": -1, "splits": 0, "datasets": []}
    with pytest.raises(InputError, match=r": seed: .* \(got -1\) \(and 2 more\)$"):
        load(content)


REFUSED_NAMES = {
    "store": ("profiles.store", {}, "results have a folder of that name"),
    "seed-1": ("profiles.seed-1", {}, "results have a folder of that name"),
    "column": ("metrics", [{"name": "rmse", "label": "seconds"}], "is a column of every row"),
    "path": (
        "datasets",
        [{"name": "csv", "path": "d.csv", "target": "y", "label": "a/b"}],
        "has /",
    ),
    "long": ("datasets", [{"name": "csv", "path": f"{'d' * 200}.csv", "target": "y"}], "longer"),
}


@pytest.mark.parametrize(("path", "value", "message"), REFUSED_NAMES.values(), ids=REFUSED_NAMES)
def test_names_that_would_be_lost_among_others_are_refused(
    load, content, put, path, value, message
):
    put(path, value)
    with pytest.raises(InputError, match=message):
        load(content)


def test_settings_by_a_name_that_has_another_label_here_are_refused(load, content, put):
    put("datasets", ["diabetes", {"name": "yacht", "label": "boats"}])
    put("notes", [])
    put("by_dataset", {"yacht": {"training": {"epochs": 3}}})
    with pytest.raises(InputError, match="'yacht' is called 'boats' here: use that"):
        load(content)
