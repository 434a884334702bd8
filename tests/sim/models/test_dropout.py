import pytest
import torch
from torch import nn
from torch.func import vmap

from equifl.sim.models.dropout import SeededDropout, has_dropout, seed_dropout, with_seeded_dropout


def dropped(layer: SeededDropout, seed: int, x: torch.Tensor) -> torch.Tensor:
    seed_dropout(layer, torch.tensor(seed))
    found: torch.Tensor = layer(x)
    return found


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_that_is_dropped_and_the_mean(p: float) -> None:
    x = torch.full((1000, 200), 3.0)
    for seed in (0, 1, 2**62 - 1):
        found = dropped(SeededDropout(p), seed, x)
        assert float((found == 0).float().mean()) == pytest.approx(p, abs=0.005)
        assert sorted(set(found.flatten().tolist())) == pytest.approx([0.0, 3 / (1 - p)])
        for axis in (0, 1):  # no row or column has much more than its share
            shares = (found == 0).float().mean(dim=axis)
            deviation = float((p * (1 - p) / x.shape[axis]) ** 0.5)
            assert float(shares.std()) == pytest.approx(deviation, rel=0.25)


def test_masks_of_seeds_steps_layers_and_calls_have_nothing_in_common() -> None:
    module, x = nn.Sequential(SeededDropout(0.5), SeededDropout(0.5)), torch.ones(100_000)
    masks = []
    for seed in (7, 8, 7 + 2**40):
        seed_dropout(module, torch.tensor(seed))
        masks += [layer(x) > 0 for layer in module for _ in range(2)]
    for i, one in enumerate(masks):
        for other in masks[:i]:
            assert float((one == other).float().mean()) == pytest.approx(0.5, abs=0.01)
    assert torch.equal(dropped(SeededDropout(0.5), 7, x) > 0, masks[0])


def test_extremes() -> None:
    assert torch.equal(dropped(SeededDropout(1.0), 1, torch.ones(50)), torch.zeros(50))
    assert torch.equal(dropped(SeededDropout(0.0), 1, torch.ones(50)), torch.ones(50))


def test_each_model_of_a_stack_has_the_mask_of_its_seed() -> None:
    layer, seeds, x = SeededDropout(0.5), torch.tensor([3, 4, 5]), torch.rand(3, 6, 8)

    def one(x: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        seed_dropout(layer, seed)
        found: torch.Tensor = layer(x)
        return found

    found = vmap(one)(x, seeds)
    assert torch.equal(
        found, torch.stack([dropped(layer, int(seed), row) for seed, row in zip(seeds, x, strict=True)])
    )


def test_layers_of_pytorch_are_replaced_wherever_they_are() -> None:
    twice = nn.Dropout(0.2)
    module = nn.Sequential(nn.Sequential(twice, nn.Dropout2d(0.3)), twice, nn.AlphaDropout(0.1))
    assert with_seeded_dropout(module) is module
    found = [layer for layer in module.modules() if isinstance(layer, SeededDropout)]
    assert [(layer.p, layer.channels) for layer in found] == [(0.2, 0), (0.3, 2)]
    assert isinstance(module[2], nn.AlphaDropout)
    assert has_dropout(module)
    assert not has_dropout(with_seeded_dropout(nn.Sequential(nn.Dropout(0.0), nn.Linear(2, 2))))


def test_whole_channels_are_dropped() -> None:
    layer = SeededDropout(0.5, channels=2)
    found = dropped(layer, 1, torch.ones(20, 30, 4, 4)).flatten(2)
    assert ((found == 0).all(dim=2) | (found == 2).all(dim=2)).all()
    assert 0.4 < float((found == 0).float().mean()) < 0.6
    with pytest.raises(ValueError, match=r"nn.Dropout2d: got shape \(3, 4\), expected a batch"):
        dropped(layer, 1, torch.ones(3, 4))
