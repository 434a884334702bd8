"""A job on the sites of site_script.py: `python -m tests.nvflare.job WHERE OPTIONS`, with options as JSON.

WHERE is the workspace of a simulation, or the startup kit of an administrator.
"""

import json
import sys
from pathlib import Path

import numpy as np
from nvflare.recipe import ProdEnv, SimEnv

from equifl.nvflare import FairFedAvgRecipe
from tests.nvflare.site_script import SIZE

SCRIPT = Path(__file__).parent / "site_script.py"


def main(where: str, given: str) -> None:
    options = json.loads(given)
    sites = options.pop("sites")
    recipe = FairFedAvgRecipe(name="numbers", model={"w": np.zeros(SIZE)}, train_script=str(SCRIPT), **options)
    if (Path(where) / "startup").exists():
        run = recipe.execute(ProdEnv(startup_kit_location=where, login_timeout=30.0))
    else:
        run = recipe.execute(SimEnv(num_clients=sites, workspace_root=where))
    print("results:", run.get_result(timeout=240), "status:", run.get_status())


if __name__ == "__main__":
    main(*sys.argv[1:])
