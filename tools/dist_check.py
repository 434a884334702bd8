"""Install the wheel as a user does, into fresh environments, and use it there.

python -m tools.dist_check dist [--python 3.12]...

For every Python from 3.11 on that is found (`python3.11` and so on, or those of pyenv): the wheel with numpy alone,
then with the simulator and the compiled engine, as constraints.txt has them. PyTorch is large: minutes each.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
TINY = ("--set", "rounds=3", "--set", "seeds=[0]", "--set", "selectors={rota={}}", "--quiet")


def own_loop() -> str:
    """The README's training loop, which needs numpy alone."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (found,) = (block for block in blocks if "SignalStore" in block)
    return f"{found}\nassert store.signals(20).times_selected.tolist() == [2] * 100\n"


def interpreter(version: str) -> str | None:
    """A Python of this version that works: a shim of pyenv may be there for versions that are not chosen."""
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python"))
    for found in filter(None, [shutil.which(f"python{version}"), *map(str, reversed(pyenv))]):
        if subprocess.run([found, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return found
    return None


def check(python: str, wheel: Path, folder: Path) -> None:
    """Install and use it; a failing command ends the check with what it said."""
    run(python, "-m", "venv", folder / "environment", cwd=folder)
    own, pip = folder / "environment" / "bin" / "python", ("-m", "pip", "install", "--quiet", "--constraint")
    run(own, *pip, ROOT / "constraints.txt", wheel, cwd=folder)
    run(own, "-m", "equifl", "--version", cwd=folder)
    run(own, "-c", own_loop(), cwd=folder)
    run(own, *pip, ROOT / "constraints.txt", f"{wheel}[sim,fast]", cwd=folder)
    for engine in ("torch", "compiled"):
        run(own, "-m", "equifl", "run", *TINY, "--set", f"engine={engine}", "--out", f"runs/{engine}", cwd=folder)


def run(*command: object, cwd: Path) -> None:
    """Run a command where the repository cannot be imported from."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)[:200]}\n{done.stdout}{done.stderr}")


def main() -> None:
    """Check all versions that are asked for, or found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dist", type=Path, help="the folder with the wheel")
    parser.add_argument("--python", action="append", metavar="VERSION", help="only this version; may be repeated")
    given = parser.parse_args()
    wheels = list(given.dist.resolve().glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"{given.dist}: {len(wheels)} wheels are there, one is expected; make dist")
    for version in given.python or VERSIONS:
        python = interpreter(version)
        if python is None:
            print(f"Python {version}: not found, not tried")
            continue
        with tempfile.TemporaryDirectory() as folder:
            check(python, wheels[0], Path(folder))
        print(f"Python {version}: installed and used, with numpy alone and with [sim,fast]", flush=True)


if __name__ == "__main__":
    main()
