"""The bytes that a round of a run moves, and the seconds that it takes."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from equifl.experiment.config import Config
from equifl.metrics import round_bytes
from equifl.signals import Ints
from equifl.sim.loop.runs import Run


def traffic(
    run: Run, config: Config, round: int, parameters: int, rule_needs: Collection[str], asked: int, replied: int
) -> dict[str, int]:
    """The record's `bytes_down` and `bytes_up`: of training, of the signals that the selector and the rule need.

    Args:
        run: whose selector says which signals are sent.
        config: says whether they are fresh, and whether clients are introduced before the first round.
        round: from 0.
        parameters: of the model, as far as they are sent.
        rule_needs: the signals that the server rule looks at.
        asked: how many clients were selected.
        replied: how many of them sent their update.
    """
    fresh, n = config.signal == "gradient", len(run.environment.sizes)
    count = partial(round_bytes, clients=n, parameters=parameters, needs=run.needs, sketch=config.sketch)
    count = partial(count, classes=run.environment.classes)
    down, up = count(cohort=asked, replied=replied, fresh=fresh)
    if config.introduce and round == 0 and not fresh and run.needs:
        introduction = count(cohort=0, replied=0, fresh=True)
        down, up = down + introduction[0], up + introduction[1]
    if "losses" in rule_needs and "losses" not in run.needs:
        up += 4 * replied
    if "label_counts" in run.needs and round == 0:
        up += 4 * n * run.environment.classes
    return {"bytes_down": down, "bytes_up": up}


def time_taken(run: Run, round: int, replied: Ints) -> dict[str, float]:
    """The record's `seconds`, if there is a clock: those of the slowest client that replied. Its store is told."""
    seconds = run.environment.durations(round)
    if seconds is None:
        return {}
    if "durations" in run.needs:
        run.store.observe(replied, durations=seconds[replied])
    return {"seconds": float(seconds[replied].max(initial=0.0))}
