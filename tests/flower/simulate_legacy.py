"""examples/flower-legacy in Flower's simulation: python -m tests.flower.simulate_legacy FOLDER ROUNDS [resume]."""

import sys
from pathlib import Path

from flwr.simulation import run_simulation

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "flower-legacy"))

if __name__ == "__main__":
    from flwr.app import Context
    from flwr.server import ServerApp, ServerAppComponents
    from legacy_numbers.client_app import app as client  # type: ignore[import-not-found,unused-ignore]
    from legacy_numbers.server_app import server_fn  # type: ignore[import-not-found,unused-ignore]

    def configured(context: Context) -> ServerAppComponents:
        folder, rounds, *resume = sys.argv[1:]
        context.run_config |= {"k": 3, "rounds": int(rounds), "folder": folder, "resume": bool(resume)}
        return server_fn(context)

    run_simulation(
        server_app=ServerApp(server_fn=configured),
        client_app=client,
        num_supernodes=8,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0}},
    )
