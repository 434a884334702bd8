"""Orderings that others published, or that a docstring states, in small runs of our own.

python -m tools.anchors [NAME ...]        # plays them, and writes results/anchors.json (mnist: see `equifl data get`)

Each is a setting, two selectors and a measure, and comes out as the mean of the paired differences over seeds with its
95 % interval. They are small enough for two cores; what is left out of the authors' settings is said in `setting`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from equifl.sim.data.catalogue import load
from equifl.sim.simulation import simulate
from equifl.statistics import interval

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "anchors.json"
DIGITS: dict[str, Any] = {"data": "digits", "clients": 30, "per_round": 5, "rounds": 60, "evaluate_every": 6}
TWO_CLASSES = DIGITS | {"seeds": 20, "partition": {"kind": "classes", "classes_per_client": 2}}
TARGET = 70.0  # percent of accuracy


def fifths() -> dict[str, Any]:
    """10,000 digits of MNIST among 50 clients: a fifth of them each with alpha = .001, .002, .005, .01 and .2."""
    digits, rng, alphas = load("mnist"), np.random.default_rng(0), np.repeat([0.001, 0.002, 0.005, 0.01, 0.2], 10)
    found: list[Any] = []
    owners: list[Any] = []
    shares = [rng.dirichlet(np.full(10, alpha)) for alpha in alphas]
    for x, y, each in ((digits.x_train, digits.y_train, 200), (digits.x_test, digits.y_test, 40)):
        left = [rng.permutation(np.flatnonzero(y == label)).tolist() for label in range(10)]
        drawn = [
            (left[c].pop(), i) for i, share in enumerate(shares) for c in rng.choice(10, each, p=share) if left[c]
        ]
        examples, clients = np.array(drawn).T
        found += [x[examples], y[examples]]
        owners.append(clients)
    return {"name": (*found, *owners), "partition": {"kind": "natural"}}


ANCHORS: dict[str, dict[str, Any]] = {
    "halves_of_rota": {
        "claim": "of Rota's two halves balance makes the accuracy even, and turns make participation equal",
        "source": "the docstring of Rota",
        "setting": "digits, 30 clients of two digits each, 5 a round, 60 rounds, the configuration's defaults",
        "settings": DIGITS | {"seeds": 20},
        "selectors": {
            "uniform": {},
            "reshuffle": {},
            "balanced": {},
            "balanced_loss": {"class": "balanced", "prefer": "loss"},
            "rota": {},
        },
        "measures": ["accuracy", "dissimilarity", "worst10", "gini"],
    },
    "full_participation": {
        "claim": "the limit of selection in the setting of halves_of_rota",
        "source": "the docstring of Rota",
        "setting": "as halves_of_rota, with all 30 clients in every round",
        "settings": DIGITS | {"seeds": 20, "per_round": 30},
        "selectors": {"full": {"class": "uniform"}},
        "measures": ["accuracy", "dissimilarity", "worst10", "gini"],
    },
    "clustered_sampling": {
        "claim": "clustered sampling has a lower training loss than sampling by size, where a client has one class",
        "source": "Fraboni et al. 2021, figure 1",
        "setting": "MNIST, 100 clients of one digit each, 10 a round, 50 steps of 50 examples, learning rate 0.01, a "
        "hidden layer of 50; theirs has 200 rounds, and draws the others with replacement",
        "settings": {
            "data": "mnist",
            "partition": {"kind": "classes", "classes_per_client": 1},
            "clients": 100,
            "per_round": 10,
            "rounds": 60,
            "evaluate_every": 5,
            "seeds": 5,
            "signal_examples": 100,
            "train": {"model": "mlp", "model_options": {"hidden": 50}, "steps": 50, "batch_size": 50, "lr": 0.01},
        },
        "selectors": {"uniform": {}, "clustered_sampling": {}},
        "measures": ["global_loss", "accuracy"],
    },
    "power_of_choice": {
        "claim": "with fresh losses (pow-d) of 15 candidates the training loss falls faster than at random",
        "source": "Cho, Wang, Joshi 2020, section 5 (logistic regression on Synthetic(1, 1))",
        "setting": "Synthetic(1, 1), 30 clients, 1 a round, 30 steps of 50 examples, learning rate 0.05; 60 of their "
        "800 rounds, where they report the largest difference",
        "settings": {
            "data": {"name": "synthetic", "alpha": 1.0, "beta": 1.0, "partition": {"kind": "natural"}},
            "clients": 30,
            "per_round": 1,
            "rounds": 60,
            "evaluate_every": 5,
            "seeds": 10,
            "signal": "gradient",
            "train": {"model": "logistic", "steps": 30, "batch_size": 50, "lr": 0.05},
        },
        "selectors": {
            "uniform": {},
            "pow_2": {"class": "power_of_choice", "candidates": 2},
            "pow_15": {"class": "power_of_choice", "candidates": 15},
        },
        "measures": ["global_loss", "accuracy"],
    },
    "label_balance": {
        "claim": "cohorts with balanced labels learn more accurately than cohorts at random",
        "source": "Zhang et al. 2023 (Fed-CBS); Lutz et al. 2024 (FedEntOpt)",
        "setting": "digits, 30 clients of two classes, 5 a round, 60 rounds; theirs are CIFAR-10 and FMNIST",
        "settings": TWO_CLASSES,
        "selectors": {"uniform": {}, "label_balance": {}},
        "measures": ["accuracy", "dissimilarity"],
    },
    "fedgs": {
        "claim": "where clients come and go, FedGS evens the counts out, and learns faster than sampling at random",
        "source": "Wang et al. 2023",
        "setting": "digits, 30 clients of two classes, 30 % online at random, 5 a round, 60 rounds; theirs are images "
        "and a synthetic set, with availabilities of several kinds",
        "settings": TWO_CLASSES | {"availability": {"online": 0.3}},
        "selectors": {"uniform": {}, "fedgs": {}},
        "measures": ["global_loss", "accuracy", "gini"],
    },
    "optimal_sampling": {
        "claim": "with fresh updates and weights 1/p the training loss falls faster than with uniform sampling",
        "source": "Chen et al. 2022",
        "setting": "digits, 30 clients of two classes, 5 a round, 60 rounds, fresh gradients, the selector's weights; "
        "theirs are FEMNIST and Shakespeare, with clients of very unequal sizes",
        "settings": TWO_CLASSES | {"signal": "gradient", "server": {"aggregate": "selector"}},
        "selectors": {"uniform": {}, "optimal_sampling": {}},
        "measures": ["global_loss", "accuracy"],
    },
    "active_fl": {
        "claim": "active sampling needs fewer rounds than sampling at random",
        "source": "Goetz et al. 2019",
        "setting": "digits, 30 clients of two classes and unequal sizes, 5 a round, 60 rounds; theirs are tasks on "
        "short texts, with thousands of clients",
        "settings": DIGITS
        | {"seeds": 20, "partition": {"kind": "classes", "classes_per_client": 2, "sizes": "lognormal"}},
        "selectors": {"uniform": {}, "active_fl": {}},
        "measures": ["global_loss", "accuracy"],
    },
    "oort": {
        "claim": "an accuracy is reached in less time than with cohorts at random",
        "source": "Lai et al. 2021",
        "setting": "digits, 30 clients of two classes whose speeds differ lognormally (sigma 1), 5 a round, up to 120 "
        "rounds; theirs have thousands of clients, and traces of devices",
        "settings": TWO_CLASSES | {"rounds": 120, "evaluate_every": 2, "speed": {"step_seconds": 0.1, "sigma": 1.0}},
        "selectors": {"uniform": {}, "oort": {}},
        "measures": ["seconds_to_target", "accuracy"],
    },
    "hicsfl": {
        "claim": "where some clients have balanced labels and others not, HiCS-FL learns faster than random cohorts",
        "source": "Chen and Vikalo 2024",
        "setting": "MNIST instead of their FMNIST, 50 clients of 200 examples, Dirichlet by fifths of them (.001, "
        ".002, .005, .01, .2), 5 a round, 60 rounds of 2 epochs, batches of 64; a hidden layer, not convolutions",
        "settings": {
            "data": fifths,
            "per_round": 5,
            "rounds": 60,
            "evaluate_every": 5,
            "seeds": 20,
            "train": {"model": "mlp", "model_options": {"hidden": 50}, "epochs": 2, "batch_size": 64, "lr": 0.05},
        },
        "selectors": {"uniform": {}, "hicsfl": {"rounds": 60}},
        "measures": ["global_loss", "accuracy", "early_accuracy"],
    },
}


def play(name: str, **other: Any) -> list[dict[str, Any]]:
    """The records of an anchor; `other` replaces settings, such as `rounds`."""
    settings = {key: value() if callable(value) else value for key, value in ANCHORS[name]["settings"].items()}
    return simulate(selectors=ANCHORS[name]["selectors"], **(settings | other)).records


def summary(name: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    """By selector: the mean of each measure over half of the evaluations, and the first seed's cohorts.

    It is the second half, or the first of an `early_` measure.
    """
    found: dict[str, Any] = {}
    for selector in ANCHORS[name]["selectors"]:
        own = [record for record in records if record["selector"] == selector]
        runs = {seed: [r for r in own if r["seed"] == seed] for seed in dict.fromkeys(r["seed"] for r in own)}
        values = {measure: [half_mean(run, measure) for run in runs.values()] for measure in ANCHORS[name]["measures"]}
        first = next(iter(runs.values()))
        found[selector] = values | {"first_cohorts": [sorted(record["cohort"]) for record in first[:3]]}
    return found


def half_mean(run: list[dict[str, Any]], measure: str) -> float:
    """The mean over half of a run's evaluations; or the seconds to the target, all of them if never."""
    if measure == "seconds_to_target":
        reached = next((i for i, record in enumerate(run) if record.get("accuracy", 0) >= TARGET), len(run) - 1)
        return round(sum(record["seconds"] for record in run[: reached + 1]), 2)
    seen = [record for record in run if "accuracy" in record]
    name = measure.removeprefix("early_")
    values = [record["participation"]["gini"] if name == "gini" else record[name] for record in seen]
    middle = len(values) // 2
    return round(float(np.mean(values[middle:] if name == measure else values[: max(1, middle)])), 4)


def written(results: dict[str, Any]) -> str:
    """As JSON, a line a selector."""
    parts = []
    for name, one in results.items():
        rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in one["selectors"].items())
        told = "\n".join(f" {json.dumps(key)}: {json.dumps(one[key])}," for key in ("claim", "source", "setting"))
        parts.append(f'{json.dumps(name)}: {{\n{told}\n "selectors": {{\n{rows}\n }}\n}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def difference(results: dict[str, Any], name: str, first: str, second: str, measure: str) -> tuple[float, float]:
    """Of two selectors of an anchor, first less second, seed by seed: the mean, and half of its 95 % interval."""
    ours, theirs = (np.array(results[name]["selectors"][selector][measure]) for selector in (first, second))
    return interval((ours - theirs).tolist())


def main() -> None:
    """Play the anchors that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*ANCHORS, []])
    names = parser.parse_args().names or list(ANCHORS)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        told = {key: ANCHORS[name][key] for key in ("claim", "source", "setting")}
        results[name] = told | {"selectors": summary(name, play(name))}
        RESULTS.write_text(written({key: results[key] for key in ANCHORS if key in results}))
        print(f"played {name}")


if __name__ == "__main__":
    main()
