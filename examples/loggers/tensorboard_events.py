"""Every figure as a curve in TensorBoard, a line a selector and seed: pip install tensorboard."""

from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from equifl import Callback, simulate
from equifl.experiment.results import Records


class TensorBoard(Callback):
    """Writes events to a folder; `tensorboard --logdir FOLDER` shows them."""

    def __init__(self, folder: Path | str) -> None:
        self._folder, self._writers = Path(folder), dict[str, Any]()

    def on_round(self, played: int, records: Records) -> None:
        for record in records:
            run = f"{record['selector']}/seed {record['seed']}"
            if run not in self._writers:
                self._writers[run] = SummaryWriter(self._folder / run)
            for name, value in record.items():
                if isinstance(value, float):
                    self._writers[run].add_scalar(name, value, record["round"])

    def on_end(self, results: Any) -> None:
        for writer in self._writers.values():
            writer.close()


if __name__ == "__main__":
    simulate(selectors=["uniform", "rota"], model="mlp", rounds=10, seeds=2, callbacks=[TensorBoard("events")])
