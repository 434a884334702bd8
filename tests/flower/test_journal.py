from pathlib import Path
from threading import Timer

import pytest
from flwr.serverapp.strategy import FedAvg

from equifl import Rota
from equifl.experiment.run_folder import FolderBusyError, RunFolder
from equifl.flower import FairSelection
from tests.flower.pretend_grid import PretendGrid, play

pytestmark = pytest.mark.usefixtures("inside_a_run")


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
