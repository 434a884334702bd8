from pathlib import Path

import pytest

from equifl.sim.data.catalogue import NAMES, listing, load, options_of
from equifl.sim.data.download import SOURCES


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(
        ValueError, match=r"data set: 'cifar-10' is not known; did you mean 'cifar10'\? allowed: digits"
    ):
        load("cifar-10")
    with pytest.raises(ValueError, match="mnist option: 'clients' is not known; allowed: none"):
        load("mnist", clients=3)


def test_the_list_says_what_there_is_and_where(real_data: Path, tmp_path: Path) -> None:
    entries = listing(real_data)
    assert tuple(entries) == NAMES
    assert entries["mnist"].folder == real_data / "mnist"
    assert entries["mnist"].download == sum(
        (real_data / "mnist" / file).stat().st_size for file in SOURCES["mnist"].files
    )
    assert entries["cifar10"].folder is None
    assert entries["digits"].download == 0
    assert all(entry.folder is None for entry in listing(tmp_path).values())
    assert options_of("arrays") == ("path", "standardise", "regression")
