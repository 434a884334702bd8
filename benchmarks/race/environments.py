"""A virtual environment for each peer, because their pins clash; made when first needed, in the repository's root."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What pip installs, in turns, with the repository's constraints: they have the PyTorch without CUDA.
INSTALLS: dict[str, list[list[str]]] = {
    "flower": [["torch"], ["flwr[simulation]"]],
    "pfl": [["torch"], ["pfl[pytorch]"]],
    # FedLab wants torchvision, which its training does not use, and which would bring another PyTorch.
    "fedlab": [
        ["torch", "numpy", "pandas", "scikit-learn", "pynvml", "tqdm", "munch", "pillow"],
        ["--no-deps", "fedlab"],
    ],
    # FedJAX calls `jax.tree_map`, which later versions no longer have.
    "fedjax": [["fedjax", "jax<0.6"]],
}


def python_of(name: str) -> str:
    """The interpreter of an environment; RuntimeError with pip's last words if it cannot be made."""
    if not name:
        return sys.executable
    folder, wanted = ROOT / f".venv-bench-{name}", json.dumps(INSTALLS[name])
    python, done = folder / "bin" / "python", folder / "installed.json"
    if done.exists() and done.read_text() == wanted:
        return str(python)
    print(f"making {folder.name} ...", flush=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    steps = [[sys.executable, "-m", "venv", "--clear", str(folder)]]
    steps += [[*pip, "--constraint", str(ROOT / "constraints.txt"), *packages] for packages in INSTALLS[name]]
    for step in steps:
        made = subprocess.run(step, capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(f"{name} cannot be installed: {made.stderr.strip().splitlines()[-1]}")
    done.write_text(wanted)
    return str(python)
