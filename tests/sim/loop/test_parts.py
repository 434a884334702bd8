"""Checkpoints in parts, and joined again."""

import numpy as np
import pytest
import torch

from equifl.experiment.config import Config
from equifl.sim.loop.federation import Federation
from equifl.sim.loop.parts import joined, part_of, runs_of, split
from equifl.sim.simulation import load_data

OVERRIDES = ["rounds=12", "clients=12", "per_round=3", "seeds=[0,1,5]", "evaluate_every=4", "train.steps=2"]
OVERRIDES += ["train.model=logistic", "data.name=synthetic", "data.partition=natural"]
CONFIG = Config.load(overrides=OVERRIDES)
DATA = load_data(CONFIG, None)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 100])
def test_every_run_is_in_one_group(workers: int) -> None:
    groups = split(CONFIG, workers)
    assert len(groups) <= workers
    assert sorted(run for group in groups for run in runs_of(group)) == sorted(runs_of(CONFIG))


@pytest.mark.parametrize("more", [[], ["sketch=16"], ["selectors={uniform={},clustered_sampling={},rota={}}"]])
@pytest.mark.parametrize("workers", [2, 7, 18])
def test_a_checkpoint_in_parts_is_the_checkpoint(more: list[str], workers: int) -> None:
    config = Config.load(overrides=[*OVERRIDES, *more])
    federation = Federation(config, DATA, device="cpu")
    federation.play()
    state, groups = federation.state(), split(config, workers)
    parts = [part_of(state, config, group) for group in groups]
    assert [len(part["models"]) for part in parts] == [len(runs_of(group)) for group in groups]
    whole = joined(parts, config, groups)
    assert whole.keys() == state.keys()
    for key, value in state.items():
        np.testing.assert_array_equal(whole[key], value)


@pytest.mark.parametrize("workers", [2, 18])
def test_the_memory_of_the_server_rule_is_in_the_parts(workers: int) -> None:
    """Some runs have none yet, as where nobody has replied."""
    federation, groups = Federation(CONFIG, DATA, device="cpu"), split(CONFIG, workers)
    federation.play()
    for i, run in enumerate(federation.runs[3:]):
        run.memory = (torch.full((2,), float(i)), torch.tensor(i))
    state = federation.state()
    whole = joined([part_of(state, CONFIG, group) for group in groups], CONFIG, groups)
    assert whole.keys() == state.keys()
    assert whole["server.parts"].tolist() == [-1] * 3 + [2] * 15
    for key, value in state.items():
        np.testing.assert_array_equal(whole[key], value)
