import numpy as np

from equifl.sim.data.catalogue import listing, load


def test_diabetes() -> None:
    found = load("diabetes")
    assert (found.classes, found.outputs) == (None, 1)
    assert found.x_train.shape == (listing()["diabetes"].train, 10)
    assert found.x_test.shape == (listing()["diabetes"].test, 10)
    assert found.y_train.dtype == found.y_test.dtype == np.float32
    for column in (*found.x_train.T, found.y_train):
        np.testing.assert_allclose([column.mean(dtype=np.float64), column.std(dtype=np.float64)], [0, 1], atol=1e-5)
    train, test = (np.asarray(x, np.float64) for x in (found.x_train, found.x_test))
    solution = np.linalg.lstsq(train, found.y_train, rcond=None)[0]
    error = found.y_test - test @ solution
    assert 0.4 < 1 - error.var() / found.y_test.var() < 0.7  # linear regression explains about half of it
