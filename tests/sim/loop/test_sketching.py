import numpy as np
import pytest
import torch

from equifl.sim.loop.sketching import sketched
from equifl.sketch import CountSketch


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 70_000)])
def test_torch_and_numpy_make_the_same_sketches(shape: tuple[int, int]) -> None:
    updates = torch.from_numpy(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    sketch = CountSketch(length=16, seed=2)
    assert sketched(updates, sketch).numpy().tobytes() == sketch.rows(updates.numpy()).tobytes()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_gpu_makes_the_same_sketches_up_to_rounding() -> None:
    updates = torch.randn(5, 70_000, device="cuda")
    sketch = CountSketch(length=16, seed=2)
    np.testing.assert_allclose(sketched(updates, sketch).cpu(), sketch.rows(updates.cpu()), rtol=1e-6, atol=1e-5)
