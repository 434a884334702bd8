import json
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from equifl import DivFL, Rota, Selector, SubTrunc
from equifl.experiment.checkpoint import read_checkpoint, write_checkpoint
from equifl.experiment.run_folder import FolderBusyError, RunFolder
from equifl.flower import FairSelection
from tests.flower.pretend_grid import (
    ALL,
    PretendGrid,
    cohorts,
    fair,
    grid_of,
    play,
    rows,
)

pytestmark = pytest.mark.usefixtures("inside_a_run")


@pytest.mark.filterwarnings("ignore:no client has sent")  # in the first round nobody has
@pytest.mark.parametrize("selector", ALL, ids=lambda selector: type(selector).__name__)
def test_a_resumed_run_chooses_as_an_unbroken_one(selector: Selector, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    unbroken = play(fair(selector, folder=whole, probe="newcomers"), grid_of(), 6)
    first = fair(selector, folder=parts, probe="newcomers")
    play(first, grid_of(first=1000), 3)
    second = FairSelection.resume(
        parts, FedAvg(), selector, k=3, identity="partition-id", patience=0.5, probe="newcomers"
    )
    assert second.rounds_played == 3
    result = play(second, grid_of(first=7000), 3, second.arrays)
    assert cohorts(parts) == cohorts(whole)
    assert [row["round"] for row in rows(parts)] == list(range(6))
    for ours, theirs in zip(result.arrays.values(), unbroken.arrays.values(), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


def test_a_folder_is_neither_overwritten_nor_resumed_with_other_settings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no finished round; start with FairSelection"):
        FairSelection.resume(tmp_path / "new", FedAvg(), Rota(), k=3)
    assert not (tmp_path / "new").exists()
    play(fair(Rota(), folder=tmp_path / "may", resume=True), grid_of(), 1)  # there may be something, and there is not
    assert [row["round"] for row in rows(tmp_path / "may")] == [0]
    first = fair(Rota(), folder=tmp_path / "run")
    play(first, grid_of(), 1)
    with pytest.raises(ValueError, match="holds a run; resume=True continues it"):
        fair(Rota(), folder=tmp_path / "run")
    with pytest.raises(ValueError, match="per_round: 3 there, 4 here"):
        FairSelection.resume(tmp_path / "run", FedAvg(), Rota(), k=4, identity="partition-id")


def halved(losses: Any) -> Any:
    return 0.5 * losses


def test_a_function_has_the_same_name_in_every_process(tmp_path: Path) -> None:
    play(fair(SubTrunc(phi=halved), folder=tmp_path), grid_of(), 1)
    config = json.loads((tmp_path / "config.json").read_text())["config"]
    assert config["selectors"]["subtrunc"]["phi"] == "tests.flower.test_journal:halved"


def test_a_row_without_its_checkpoint_is_played_again(tmp_path: Path) -> None:
    first = fair(Rota(), folder=tmp_path)
    play(first, grid_of(), 2)
    with (tmp_path / "rounds.jsonl").open("a") as file:
        file.write(json.dumps(rows(tmp_path)[-1] | {"round": 2}) + "\n")
    second = FairSelection.resume(tmp_path, FedAvg(), Rota(), k=3, identity="partition-id", patience=0.5)
    play(second, grid_of(), 1, second.arrays)
    assert [row["round"] for row in rows(tmp_path)] == [0, 1, 2]


def test_a_run_is_not_resumed_without_its_guard(tmp_path: Path) -> None:
    play(fair(Rota(), folder=tmp_path), grid_of(), 1)
    with pytest.raises(ValueError, match=r"flower\.guard: true there, false here"):
        fair(Rota(), folder=tmp_path, resume=True, guard=False)


def test_to_resume_one_waits_until_the_stopped_run_has_left_its_folder(tmp_path: Path) -> None:
    grid = PretendGrid({1: 0, 2: 1, 3: 2})
    play(FairSelection(FedAvg(), Rota(), k=2, folder=tmp_path), grid, 1)
    stopped = RunFolder(tmp_path)
    leaving = RunFolder.open(tmp_path, stopped.config, stopped.made_with)
    with pytest.raises(FolderBusyError, match="is being written by another process"):
        FairSelection.resume(tmp_path, FedAvg(), Rota(), k=2, patience=0)
    leaves = Timer(0.2, leaving.close)
    leaves.start()
    resumed = FairSelection.resume(tmp_path, FedAvg(), Rota(), k=2, patience=60)
    leaves.join()
    play(resumed, grid, 1, resumed.arrays)
    assert [row["round"] for row in stopped.rows()] == [0, 1]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def resumed(folder: Path) -> FairSelection:
    return FairSelection.resume(folder, FedAvg(), Rota(), k=3, identity="partition-id", patience=0.5)


def test_rows_are_sealed_and_a_damaged_one_is_refused_with_nothing_changed(tmp_path: Path) -> None:
    play(fair(Rota(), folder=tmp_path), grid_of(), 3)
    rounds = tmp_path / "rounds.jsonl"
    whole = rounds.read_bytes()
    lines = whole.splitlines(keepends=True)
    for damaged, message in (
        (whole.replace(b"cohort", b"cohosu", 1), r"line 1: is damaged \(its checksum does not match\)"),
        (b"".join([lines[0], lines[0], lines[2]]), r"line 2: is of round 0, rota, seed 0; expected: round 1, rota"),
        (b"".join(lines[:2]), "2 records where the checkpoint has 3; put both files back"),
    ):
        rounds.write_bytes(damaged)
        before = files(tmp_path)
        with pytest.raises(ValueError, match=message):
            resumed(tmp_path)
        assert files(tmp_path) == before
    rounds.write_bytes(whole)
    assert resumed(tmp_path).rounds_played == 3  # and the refusals left no lock behind


def test_rounds_without_their_checkpoint_are_not_dropped(tmp_path: Path) -> None:
    play(fair(Rota(), folder=tmp_path), grid_of(), 3)
    (tmp_path / "checkpoint.npz").unlink()
    before = files(tmp_path)
    with pytest.raises(ValueError, match="3 records where the checkpoint has 0; put both files back"):
        fair(Rota(), folder=tmp_path, resume=True)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "key",
    [
        *("identities", "nodes", "clients_of_nodes", "model", "model.0", "rounds_played", "store.losses"),
        *("attendance.waited", "attendance.longest", "attendance.present", "strategy"),
    ],
)
def test_a_checkpoint_without_one_of_its_arrays_is_refused(key: str, tmp_path: Path) -> None:
    play(fair(Rota(), folder=tmp_path), grid_of(), 1)
    arrays = read_checkpoint(tmp_path / "checkpoint.npz")
    assert arrays is not None
    del arrays[key]
    write_checkpoint(tmp_path / "checkpoint.npz", arrays)
    before = files(tmp_path)
    for _ in range(2):  # the refusal leaves no lock behind
        with pytest.raises(ValueError, match=r"cannot be used \(.*"):
            resumed(tmp_path)
    assert files(tmp_path) == before


@pytest.mark.filterwarnings("ignore:no client has sent")
def test_with_fewer_checkpoints_a_killed_run_goes_on_from_the_last_one(tmp_path: Path) -> None:
    def killed(question: Any, reply: Any) -> list[Any]:
        if question.content["config"]["server-round"] == 6:
            raise KeyboardInterrupt
        return [reply]

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    play(fair(SubTrunc(), folder=whole), grid_of(), 8)
    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, killed)
    with pytest.raises(KeyboardInterrupt):
        play(fair(SubTrunc(), folder=parts, checkpoint_every=3), grid, 8)
    assert len(rows(parts)) == 5
    again = fair(SubTrunc(), folder=parts, resume=True, checkpoint_every=4)
    assert again.rounds_played == 3
    play(again, grid_of(), 5, again.arrays)
    assert cohorts(parts) == cohorts(whole)
    assert fair(SubTrunc(), folder=parts, resume=True).rounds_played == 8, "a run that ends is saved"


def test_clients_of_a_resumed_run_get_round_numbers_that_count_on(tmp_path: Path) -> None:
    class Starts(FedAvg):
        def start(self, *args: Any, **options: Any) -> Any:
            raise AssertionError("FairSelection's own is called")

    seen: list[Any] = []

    def noting(question: Any, reply: Any) -> list[Any]:
        seen.append(question.content["config"]["server-round"])
        return [reply]

    for _ in range(2):
        grid = grid_of()
        grid.faults = dict.fromkeys(grid.partitions, noting)
        one = fair(Rota(), Starts(), folder=tmp_path, resume=True)
        play(one, grid, 2, one.arrays)
    assert list(dict.fromkeys(seen)) == [1, 2, 3, 4]


def test_what_is_written_at_the_end_of_a_round_does_not_grow_with_the_rounds(tmp_path: Path) -> None:
    sizes = []
    for rounds in (4, 40):
        play(fair(Rota(), folder=tmp_path / str(rounds)), grid_of(), rounds)
        sizes.append((tmp_path / str(rounds) / "checkpoint.npz").stat().st_size)
    assert sizes[0] == sizes[1]


def test_a_resumed_run_counts_participation_as_an_unbroken_one(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder, lengths in ((whole, [6]), (parts, [3, 3])):
        grid = grid_of()
        for length in lengths:
            one = fair(DivFL(), folder=folder, resume=True, participation="present")
            grid.offline = set(list(grid.partitions)[: one.rounds_played // 3])
            play(one, grid, length, one.arrays)
    assert rows(parts)[2]["participation"] == rows(whole)[2]["participation"]
    assert rows(parts)[3]["left"] == [0]
    assert rows(parts)[3]["participants"] == 7


@pytest.mark.parametrize(("counted", "clients", "never"), [("all", 5, 1), ("present", 4, 0)])
def test_participation_may_count_the_present_clients_only(
    counted: Any, clients: int, never: int, tmp_path: Path
) -> None:
    """One of five nodes leaves before it was ever selected."""
    strategy, grid = fair(Rota(), k=2, participation=counted, folder=tmp_path / "run"), grid_of(5)
    play(strategy, grid, 1)
    first = cohorts(tmp_path / "run")[0]
    gone = next(node for node, partition in grid.partitions.items() if partition not in first)
    grid.offline = {gone}
    result = play(strategy, grid, 5, strategy.arrays)
    last = rows(tmp_path / "run")[-1]
    assert (last["participants"], last["participation"]["never"]) == (clients, never)
    assert result.evaluate_metrics_clientapp[5]["participation-clients"] == clients
    assert rows(tmp_path / "run")[0]["joined"] == [0, 1, 2, 3, 4]
    assert rows(tmp_path / "run")[1]["left"] == [grid.partitions[gone]]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["flower"]["participation"] == counted


def test_participation_is_counted_in_one_of_two_ways() -> None:
    with pytest.raises(ValueError, match="participation: 'some' is not allowed; allowed: 'all' or 'present'"):
        fair(Rota(), participation="some")
