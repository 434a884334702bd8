import json
from typing import cast

import numpy as np
import pytest

from equifl import Selector, UnionFL
from equifl.nvflare.job_json import plain_model, table_of


def test_what_a_job_carries_is_json() -> None:
    table = table_of(UnionFL())
    assert json.loads(json.dumps(table)) == table
    assert plain_model({"w": np.ones((1, 2)), "b": [3]}) == {"w": [[1.0, 1.0]], "b": [3.0]}
    with pytest.raises(ValueError, match=r"model\['w'\]: .* is not allowed; allowed: finite numbers"):
        plain_model({"w": np.array([1, np.nan])})
    with pytest.raises(ValueError, match=r"model\['w'\]: cannot be read as numbers \(text\)"):
        plain_model({"w": "abc"})
    with pytest.raises(ValueError, match=r"^selector: is the class UnionFL; allowed: an object, UnionFL\(\)"):
        table_of(cast(Selector, UnionFL))
