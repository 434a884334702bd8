"""The job: FedAvg on the digits, with cohorts that equifl chooses. `python job.py --help` says what can be set."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from nvflare.recipe import PocEnv, SimEnv

from equifl.nvflare import FairFedAvgRecipe

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--poc", action="store_true", help="the three processes of project.yml, not the simulator")
    parser.add_argument("--selector", default="rota", help="uniform, power_of_choice, divfl, subtrunc, unionfl, rota")
    parser.add_argument("--sites", type=int, default=6, help="in the simulator")
    parser.add_argument("--cohort", type=int, default=2, help="sites that train in a round")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--folder", default="runs/nvflare", help="where records and checkpoints go")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    options = parser.parse_args()
    sites = 3 if options.poc else options.sites
    recipe = FairFedAvgRecipe(
        name="fair-digits",
        model={"weights": np.zeros((64, 10)), "bias": np.zeros(10)},
        train_script=str(HERE / "digits_client.py"),
        selector=options.selector,
        num_clients=options.cohort,
        min_clients=sites,
        num_rounds=options.rounds,
        evaluate_every=1,
        timeout=120,
        evaluation_timeout=60,
        folder=str(Path(options.folder).absolute()),
        resume=options.resume,
    )
    poc = {"project_conf_path": str(HERE / "project.yml"), "num_clients": sites}
    run = recipe.execute(PocEnv(**poc) if options.poc else SimEnv(num_clients=sites))
    print("results:", run.get_result(clean_up=False))
    print(f"next: equifl report {options.folder}")


if __name__ == "__main__":
    main()
