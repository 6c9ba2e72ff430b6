"""Statements of the results page with numbers, against the published rows and tables."""

import json
from pathlib import Path

from bdl.records.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs/results.md").read_text("utf-8").split())


def final_rows(name):
    rows = RunFolder(ROOT / "results" / name).tabulate()
    return rows[(rows.stage == "final") & (rows.status == "ok")]


def printed_cells(name):
    cells = json.loads((ROOT / "results" / name / "table.json").read_text("utf-8"))
    return [cell for cell in cells if cell["paper"] is not None and cell["metric"] != "runtime"]


def recorded_means(name, metric):
    points = RunFolder(ROOT / "results" / name).tabulate_curve_points()
    return points[points.metric == metric].groupby(["dataset", "entry", "at"]).value.mean()


def test_the_full_posterior_and_the_best_others():
    means = final_rows("uci-regression").groupby(["dataset", "entry"]).nmll.agg(["mean", "sem"])
    sets = ("energy", "boston", "concrete", "yacht")
    full = ", ".join(
        f"{means['mean'][name, 'nuts']:.2f} ± {means['sem'][name, 'nuts']:.2f} ({name})"
        for name in sets
    )
    best = [f"{means['mean'][name].drop('nuts').min():.2f}" for name in sets]
    assert full.replace(", 0.00", " and 0.00") in PAGE
    assert f"the best others have {', '.join(best[:3])} and {best[3]}" in PAGE


def test_fits_of_slang_that_diverge():
    rows = final_rows("uci-regression")
    errors = rows[(rows.dataset == "yacht") & (rows.entry == "slang-nn")].rmse
    wild = errors[errors > 4]
    text = f"On {len(wild)} of {len(errors)} splits of yacht `slang-nn` has an RMSE of "
    assert f"{text}{wild.min():.1f} to {wild.max():.0f}" in PAGE
    bits = " ".join((ROOT / "docs/bits.md").read_text("utf-8").split())
    assert f"Of twenty fits {(errors > 5).sum()} have an RMSE above 5 in the published" in bits


def test_online_eig_differs_in_no_score():
    """Of the numbers that this benchmark counts; those of dropout are counted in slang-uci."""
    differing = [
        cell["method"]
        for cell in printed_cells("slang-online-eig-uci")
        if cell["counted"] and cell["verdict"].startswith("differs")
    ]
    assert "**SLANG-OnlineEig differs in no score from Table 5**" in PAGE
    assert differing == ["bbb", "bbb"]


def test_smoothed_digits():
    cells = [
        cell
        for cell in printed_cells("slang-logistic-smoothed")
        if cell["paper_source"] != "slang2018 Figure 7d"
    ]
    equivalent = sum(cell["verdict"] == "equivalent" for cell in cells)
    assert f"{equivalent} of the {len(cells)} numbers of Tables 6 and 7 are equivalent" in PAGE


def test_probabilities_of_digits():
    means = final_rows("noisy-mnist").groupby("entry")[["ece", "nll"]].mean()
    noisy = means.drop("adam")
    better = (noisy.ece < 0.9 * means.ece["adam"]).sum()
    assert better == 2
    assert len(noisy) == 4
    assert "**Two of four noisy methods have better probabilities than Adam on MNIST**" in PAGE
    ece = means.ece.map("{:.3f}".format)
    assert ece["noisy-adam"] == ece["noisy-kfac"]
    assert ece["adam"] == ece["bbb"]
    assert (
        f"the ECEs of noisy Adam and noisy K-FAC are {ece['noisy-adam']}, Adam's and Bayes by "
        f"Backprop's {ece['adam']}, Vprop's {ece['vprop-root']}"
    ) in PAGE
    assert f"({means.nll['bbb']:.3f} and {means.nll['adam']:.3f})" in PAGE


def test_photographs_that_are_rejected():
    risk = final_rows("blindness-detection/cpu").groupby("entry").aurc.mean()
    others = risk.drop(["adam", "swag"])
    assert (
        f"is {others.min():.3f} to {others.max():.3f}, {risk['adam']:.3f} for Adam and "
        f"{risk['swag']:.3f} for SWAG"
    ) in PAGE


def test_seconds_of_the_best_gaussian():
    seconds = final_rows("posterior-methods").groupby(["entry", "dataset"]).seconds.mean()
    direct, stepped = seconds["exact-gaussian"], seconds["natural-gradient"]
    low, high = int(stepped.min()), round(stepped.max())
    assert (
        f"A direct fit takes {direct.min():.2f} to {direct.max():.1f} seconds; natural gradients "
        f"take {low} to {high}"
    ) in PAGE


def test_distances_on_the_curve_with_a_gap():
    rows = final_rows("network-posterior")
    means = rows[rows.dataset == "gap_curve"].groupby("entry").function_w2.mean()
    assert f"Distances are {means.min():.1f} to {means.max():.1f}" in PAGE


def test_effective_sample_sizes():
    ess = final_rows("posterior-methods-weights").groupby(["entry", "dataset"]).ess.mean()
    gaussian, prior = ess["variational"], ess["prior"].drop("few_rows")
    hundreds = [f"{100 * round(end / 100)}" for end in (gaussian.min(), gaussian.max())]
    assert f"is {hundreds[0]} to {hundreds[1]} from the former" in PAGE
    few_rows = 10 * round(ess["prior"]["few_rows"] / 10)
    assert f"it is {prior.min():.0f} to {prior.max():.0f}, and {few_rows} on twenty rows" in PAGE


def test_weights_of_the_sparse_network():
    rows = final_rows("sparse-network")
    counts = rows[rows.entry == "horseshoe"].groupby("dataset")[
        ["weights_below_0.01", "weights_from_1"]
    ]
    means, errors = counts.mean(), counts.sem()
    sigmoid, rectified = (means.loc[name] for name in ("sparse_network_sigmoid", "sparse_network"))
    assert list(sigmoid) == [40_000, 0]
    large = f"{rectified['weights_from_1']:.0f} ± {errors['weights_from_1']['sparse_network']:.0f}"
    below = f"{rectified['weights_below_0.01']:,.0f}"
    assert f"With rectified ones {below} are below 0.01, and {large} from 1" in PAGE


def test_errors_on_digits_of_the_smaller_profile():
    errors = final_rows("mnist-slang/cpu").groupby("entry").test_error_pct.mean().round(2)
    of = errors.map("{:.2f}".format)
    assert (
        f"It is {of['slang-1']}, {of['slang-4']} and {of['slang-16']} % with ranks 1, 4 and 16"
    ) in PAGE
    assert (
        f"Bayes by Backprop has converged at {of['bbb']} % (printed 1.82), VIFA at {of['vifa']}, "
        f"dropout at {of['dropout']} and Adam at {of['adam']}"
    ) in PAGE


def test_updates_until_a_bound_on_networks():
    """SLANG after 100 updates, and Bayes by Backprop after 500, on each data set."""
    bounds = recorded_means("slang-convergence-networks", "neg_elbo")
    text = "needs 100 updates for an ELBO that Bayes by Backprop does not have after 500**"
    assert text in PAGE
    for name in ("australian", "breast_cancer", "usps_3v5"):
        for rank in (8, 16, 32):
            assert bounds[name, f"slang-{rank}", 100] < bounds[name, "bbb", 500]


def test_updates_until_a_bound_of_logistic_regressions():
    bounds = recorded_means("slang-convergence", "neg_elbo")
    assert "After 200 updates one factor has a better bound than mean field after 20,000" in PAGE
    for name in ("australian", "breast_cancer", "usps_3v5"):
        assert bounds[name, "slang-1", 200] < bounds[name, "mf-hessian", 20_000]
