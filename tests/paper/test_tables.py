import pytest

from equifl.experiment.config import Config
from equifl.paper.tables import DATA, SELECTORS, VARIANTS, configuration, rows, six, titles


def test_every_row_has_a_selector_and_the_papers_figures() -> None:
    for data in DATA:
        for table in titles():
            for row in rows(table, data):
                assert row.selector in SELECTORS
                assert len(row.printed) == (0 if row.title == "Rota" else 3 if table == "table1" else 2)


def test_figures_stand_in_the_right_half() -> None:
    """Read off the paper: SubTrunc in table I."""
    mnist, cifar = (rows("table1", data)[1] for data in DATA)
    assert mnist.printed == {"local_loss": (0.21, 0.01), "accuracy": (83.72, 0.81), "dissimilarity": (7.96, 0.62)}
    assert cifar.printed == {"local_loss": (0.89, 0.03), "accuracy": (35.53, 1.33), "dissimilarity": (12.46, 0.94)}
    assert (mnist.selector, cifar.selector) == ("subtrunc_0.95", "subtrunc_0.5")


@pytest.mark.parametrize("data", DATA)
def test_table_one_has_the_lambda_and_the_window_whose_figures_it_has(data: str) -> None:
    printed = {row.selector: row.printed for table in ("table2", "table3") for row in rows(table, data)}
    for row in rows("table1", data)[1:3]:
        figures = {name: value for name, value in row.printed.items() if name != "local_loss"}
        assert [name for name, found in printed.items() if found == figures] == [row.selector]


def test_fourteen_configurations_make_all_four_tables() -> None:
    for data in DATA:
        assert len({row.selector for table in titles() for row in rows(table, data)}) == 14


@pytest.mark.parametrize("data", DATA)
def test_the_shipped_configuration_files_are_table_one(data: str) -> None:
    from pathlib import Path

    shipped = Config.load(Path(__file__).parents[2] / "configs" / f"{data}.toml")
    ours = configuration(data, six(data), shipped.seeds)
    same = ("rounds", "clients", "per_round", "train", "data", "server", "availability", "signal")
    assert all(getattr(shipped, name) == getattr(ours, name) for name in same)
    parameters = [{k: v for k, v in options.items() if k != "class"} for options in ours.selectors.values()]
    for options in shipped.selectors.values():
        assert any(options.items() <= found.items() for found in parameters)


def test_a_variant_differs_in_one_thing() -> None:
    base = configuration("mnist", six("mnist"), [0]).as_dict()
    changed = {
        variant: {
            key
            for key, value in configuration("mnist", six("mnist"), [0], variant).as_dict().items()
            if value != base[key]
        }
        for variant in VARIANTS
    }
    assert changed["paper"] == set()
    assert all(len(keys) == 1 for variant, keys in changed.items() if variant != "paper")
    assert changed["long"] == {"rounds"}
    assert changed["exact"] == {"selectors"}


def test_an_unknown_table_or_variant_is_refused() -> None:
    with pytest.raises(ValueError, match="table: 'table5' is not known"):
        rows("table5", "mnist")
    with pytest.raises(ValueError, match="variant: 'fressh' is not known; did you mean 'fresh'"):
        configuration("mnist", [], [0], "fressh")
