"""The choice of an engine: the first in the list that supports a job, and why the ones before do not."""

from __future__ import annotations

from equifl._numerics.checks import known
from equifl.sim.engines.base import Engine, Job
from equifl.sim.engines.compiled.engine import CompiledEngine
from equifl.sim.engines.torch.engine import TorchEngine

ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (CompiledEngine, TorchEngine)}  # fastest first
CHOICES = ("auto", *ENGINES)  # what a configuration may say


def choose_engine(job: Job, wanted: str = "auto") -> tuple[Engine, str]:
    """The engine `wanted`, or with "auto" the first that supports the job; and a note on the choice."""
    known("engine", [wanted], CHOICES)
    obstacles: dict[str, str] = {}
    for name, engine in ENGINES.items():
        if wanted in ("auto", name):
            why = engine.supports(job)
            if not why:
                passed_over = "; ".join(f"not by {other}: {reason}" for other, reason in obstacles.items())
                note = f"by the {name} engine, {passed_over}" if passed_over and job.device == "cpu" else ""
                return engine(job), note
            obstacles[name] = why
    raise ValueError(
        f"engine: {wanted!r} does not support this: {'; '.join(obstacles.values())}; choose another, or auto"
    )
