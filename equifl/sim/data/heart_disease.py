"""Heart Disease of the UCI repository: the patients of four hospitals, which are its clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from equifl.sim.data.dataset import Dataset, cut, every_nth


def read_heart_disease(folder: Path) -> Dataset:
    """Four hospitals; what one did not measure becomes 0, the mean of those who did."""
    files = [folder / f"processed.{site}.data" for site in ("cleveland", "hungarian", "switzerland", "va")]
    sites = [np.genfromtxt(file, delimiter=",", missing_values="?") for file in files]
    rows, owners = np.concatenate(sites), np.repeat(np.arange(4), [len(site) for site in sites])
    test = every_nth(3, owners)
    x, y = rows[:, :-1], (rows[:, -1] > 0).astype(np.int64)
    x = np.nan_to_num((x - np.nanmean(x[~test], axis=0)) / np.nanstd(x[~test], axis=0))
    return cut("heart-disease", x, y, test, classes=2, owners=owners)
