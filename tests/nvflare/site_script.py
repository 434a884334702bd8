"""A site: least squares on data that its name decides. Arguments say which sites misbehave.

A silent one answers when the server has given it up.
"""

import argparse
import re
import time
from pathlib import Path

import numpy as np
import nvflare.client as flare
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

SIZE = 12


def data(number: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    x = rng.normal(size=(20, SIZE)).astype(np.float32)
    truth = np.full(SIZE, number % 3, np.float32)
    return x, x @ truth


def wait_until_recorded(rounds: Path) -> None:
    """Until the server has written the round without this site."""
    before = rounds.stat().st_size if rounds.exists() else 0
    while not rounds.exists() or rounds.stat().st_size == before:
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("nan", "silent", "fails", "diff"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--until", default="")
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    flare.init()
    site = flare.get_site_name()
    number = int(re.findall(r"\d+", site)[-1])
    x, y = data(number)
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        w = np.array(received.params["w"], np.float32)
        error = x @ w - y
        accuracy = float(np.exp(-np.mean(error**2)))
        if flare.is_evaluate():
            flare.send(FLModel(metrics={"accuracy": accuracy}))
            continue
        time.sleep(options.seconds)
        if site in options.silent.split(","):
            wait_until_recorded(Path(options.until))
        if site in options.fails.split(","):
            raise RuntimeError("the disk is full")
        step = -0.05 * x.T @ error / len(x)
        kind, trained = ParamsType.FULL, w + step
        if site in options.diff.split(","):
            kind, trained = ParamsType.DIFF, step
        if site in options.nan.split(","):
            trained = trained * np.nan
        metrics = {"train_loss": float(np.mean(error**2)), "accuracy": accuracy}
        meta = {"NUM_STEPS_CURRENT_ROUND": 10 * number}
        flare.send(FLModel(kind, {"w": trained}, metrics=metrics, meta=meta))


if __name__ == "__main__":
    main()
