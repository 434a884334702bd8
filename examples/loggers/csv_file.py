"""Every record as a line of a CSV file, written while the experiment runs."""

import csv
from pathlib import Path

from equifl import Callback, simulate
from equifl.experiment.results import Records

FIELDS = ("round", "selector", "seed", "local_loss", "accuracy", "dissimilarity", "worst10", "bytes_up")


class CsvFile(Callback):
    """Writes the figures of every round and run."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._path.write_text(",".join(FIELDS) + "\n")

    def on_round(self, played: int, records: Records) -> None:
        with self._path.open("a", newline="") as file:
            csv.DictWriter(file, FIELDS, extrasaction="ignore").writerows(records)


if __name__ == "__main__":
    simulate(selectors=["uniform", "rota"], model="mlp", rounds=10, seeds=2, callbacks=[CsvFile("rounds.csv")])
