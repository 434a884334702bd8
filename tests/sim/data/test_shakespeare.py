from pathlib import Path

import numpy as np
import pytest

from equifl.sim.data.catalogue import load
from equifl.sim.data.dataset import Dataset
from equifl.sim.data.shakespeare import read_shakespeare, speeches
from equifl.sim.simulation import simulate

PLAY = "ROMEO:\nIs the day so young?\n\nJULIET:\nBut new struck nine.\n\n\nROMEO:\nAy me! sad hours seem long.\n"


def play(folder: Path, lines: int = 1) -> Path:
    (folder / "input.txt").write_text("\n\n".join([PLAY.strip("\n")] * lines) + "\n")
    return folder


def as_text(rows: np.ndarray, text: str) -> list[str]:
    alphabet = sorted(set(text))
    return ["".join(alphabet[place] for place in row) for row in rows]


def test_a_speaker_says_its_lines_in_their_order() -> None:
    assert speeches(PLAY) == {
        "ROMEO": "Is the day so young?\nAy me! sad hours seem long.",
        "JULIET": "But new struck nine.",
    }


def test_targets_are_the_characters_that_follow(tmp_path: Path) -> None:
    found = read_shakespeare(play(tmp_path), length=8, characters=10)
    said = speeches(PLAY)
    assert found.owners_train is not None
    assert found.owners_test is not None
    assert set(found.owners_train.tolist()) == set(found.owners_test.tolist()) == {"ROMEO", "JULIET"}
    for speaker, line in said.items():
        mine, tested = found.owners_train == speaker, found.owners_test == speaker
        x = as_text(np.concatenate([found.x_train[mine], found.x_test[tested]]), PLAY)
        y = as_text(np.concatenate([found.y_train[mine], found.y_test[tested]]), PLAY)
        assert line.startswith("".join(x))
        assert line[1:].startswith("".join(y))
        assert 0 < len(line) - len("".join(x)) <= 8  # nothing but the end is left out
    assert found.classes == len(set(PLAY))
    assert len(found.x_test) == 2  # of five and two examples the last


def test_who_says_little_is_left_out(tmp_path: Path) -> None:
    found = read_shakespeare(play(tmp_path), length=8, characters=30)
    assert found.owners_train is not None
    assert set(found.owners_train.tolist()) == {"ROMEO"}
    with pytest.raises(ValueError, match=r"data.characters: 1000 is not allowed; allowed: fewer, as nobody says so"):
        read_shakespeare(tmp_path, characters=1000)
    with pytest.raises(ValueError, match="length: 1 is not allowed"):
        read_shakespeare(tmp_path, length=1)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_characters_are_learnt_in_company_as_alone(tmp_path: Path, dropout: float) -> None:
    dataset: Dataset = read_shakespeare(play(tmp_path, 12), length=8, characters=10)
    options = {"width": 8, "heads": 2, "dropout": dropout}
    run = {"rounds": 3, "per_round": 2, "evaluate_every": 3, "selectors": ["uniform"]}
    train = {"model": "transformer", "model_options": options, "lr": 0.5, "momentum": 0.9, "steps": 8}
    together = simulate(data=dataset, train=train, seeds=[0, 1], **run)  # type: ignore[arg-type]
    alone = simulate(data=dataset, train=train, seeds=[1], **run)  # type: ignore[arg-type]
    assert [record for record in together.records if record["seed"] == 1] == alone.records
    last, commonest = alone.records[-1], np.bincount(dataset.y_test.ravel()).max() / dataset.y_test.size
    assert last["accuracy"] > 125 * commonest  # percent
    assert len(last["client_accuracy"]) == 2
    assert together.made_with["engine"] == "torch"


def test_the_real_text(real_data: Path) -> None:
    found = load("shakespeare", data_dir=real_data)
    assert (found.x_train.shape, found.x_test.shape, found.classes) == ((11467, 64), (2819, 64), 65)
    assert found.owners_train is not None
    owners, sizes = np.unique(found.owners_train, return_counts=True)
    assert len(owners) == 99
    assert owners[sizes.argmax()] == "GLOUCESTER"
    assert sizes.min() >= 25
    assert (found.x_train[:, 1:] == found.y_train[:, :-1]).all()
