"""Every record as a line of a CSV file, written while the experiment runs."""

import csv
import io
from pathlib import Path

from equifl import Callback, simulate
from equifl.experiment.results import Records

FIELDS = ("round", "selector", "seed", "local_loss", "accuracy", "dissimilarity", "worst10", "bytes_up")


class CsvFile(Callback):
    """Appends the figures of every round and run, but no line twice: a resumed run gives its first rounds again."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._there = set(self._path.read_text().splitlines()) if self._path.exists() else set[str]()

    def on_round(self, played: int, records: Records) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, FIELDS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        head, *rows = text.getvalue().splitlines()
        with self._path.open("a") as file:
            file.writelines(line + "\n" for line in (head, *rows) if line not in self._there)
        self._there.add(head)


if __name__ == "__main__":
    simulate(selectors=["uniform", "rota"], model="mlp", rounds=10, seeds=2, callbacks=[CsvFile("rounds.csv")])
