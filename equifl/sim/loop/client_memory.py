"""The memory of clients between rounds, for the servers of all runs.

Losses and sketches are in the runs' stores, on the host. Whole updates stay on the device; only their pairwise
distances are transferred to the host, in one transfer, since the device is idle while the host waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equifl.selectors.base import FROM_UPDATES
from equifl.signals import OPTIONAL, Floats, Ints
from equifl.sim.engines.torch.transfers import to_device, to_host
from equifl.sim.loop.pairwise_distances import distances, renew
from equifl.sim.loop.runs import Run, require_finite, require_losses, rows_of, selections
from equifl.sim.loop.sketching import sketched

# Of a store's state: elsewhere in the checkpoint, in the records (history), or known from the data (label counts).
_ELSEWHERE = ("updates", "history", *OPTIONAL)
_SIGNAL = "signals."  # before the names of optional signals in a checkpoint
_WAITING = 2**24  # numbers in sketches that are buffered before they are stored


@dataclass(frozen=True)
class Reports:
    """What clients reported, still on the device; a row a client, run after run."""

    run: Ints
    clients: Ints
    losses: Tensor  # (M,)
    sketches: Tensor  # (M, length), or nothing
    lengths: Tensor  # (M,) of their updates, or nothing
    bias: Tensor  # (M, classes) of their updates, or nothing
    total: Tensor  # (M,) finite if and only if the whole report is


class ClientMemory:
    """The server's memory of clients, for all runs.

    Args:
        runs: all runs.
        parameters: the length of an update.
        sketch: the length of a sketch, if sketches are stored instead of updates.
        device: where the updates are.
        bias: where the bias of the output layer is in an update; None = it has none.

    Attributes:
        informed: the R runs whose selectors use updates.
        uses_updates: whether any run's selector uses them, or their length or bias.
        updates: (R, N, d) their updates, if these are stored whole.
        pairwise: (R, N, N) their pairwise distances, on the device.
        distances: (N, N) pairwise distances for the selector of each of these runs.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        parameters: int,
        sketch: int | None,
        device: torch.device,
        bias: slice | None = None,
    ) -> None:
        self._runs, self._sketch, self._device, self._bias = runs, sketch, device, bias
        self.informed = [i for i, run in enumerate(runs) if "updates" in run.needs]
        self.uses_updates = any(run.needs & FROM_UPDATES for run in runs)
        self._classes = 0 if bias is None else bias.stop - bias.start
        self._users = {name: [i for i, run in enumerate(runs) if name in _wanted(run, sketch)] for name in OPTIONAL}
        whole, clients = ([] if sketch else self.informed), len(runs[0].store)
        self.updates = torch.full((len(whole), clients, parameters), torch.nan, device=device)
        self.pairwise = torch.full((len(whole), clients, clients), torch.nan, device=device)
        self.distances: dict[int, Floats] = {}
        self._short = torch.zeros((), dtype=torch.int64, device=device)  # number of distances that lost precision

    def keep(self, run: Ints, clients: Ints, updates: Tensor, losses: Tensor, total: Tensor) -> Reports:
        """Store on the device what stays there, and return the rest, without synchronising."""
        rows = np.flatnonzero(np.isin(run, self.informed))
        sketches = losses.new_zeros(len(run), self._sketch or 0 if len(rows) else 0)
        for i in np.unique(run[rows]).tolist() if self._sketch else ():
            mine, sketch = rows_of(i, run), self._runs[i].store.sketch
            assert sketch is not None
            sketches[mine] = sketched(updates[mine], sketch)
        if self._sketch is None and len(rows):
            place, who = np.searchsorted(self.informed, run[rows]), clients[rows]
            where, client, row = (to_device(array, self._device) for array in (place, who, rows))
            self.updates[where, client] = updates[row]
            places = np.unique(place)
            reported = [who[place == one] for one in places]
            self._short += renew(self.pairwise, self.updates, places.tolist(), reported, wait=False)
        lengths, bias = losses.new_zeros(0), losses.new_zeros(0)
        if np.isin(run, self._users["lengths"]).any():
            lengths = torch.linalg.vector_norm(updates, dim=1)
        if self._bias is not None and np.isin(run, self._users["bias_updates"]).any():
            bias = updates[:, self._bias]
        return Reports(run, clients, losses, sketches, lengths, bias, total)

    def store_of_everyone(self, round: int, reports: Iterable[Reports]) -> None:
        """Store the reports of all clients: together, unless their sketches would fill the memory."""
        waiting: list[Reports] = []
        for report in reports:
            waiting.append(report)
            if sum(each.sketches.numel() for each in waiting) > _WAITING:
                self.store(round, waiting)
                waiting = []
        if waiting:
            self.store(round, waiting)

    def store(self, round: int, reports: Sequence[Reports], *also: Tensor) -> list[Floats]:
        """Transfer all that stores and selectors need, and `also`, with one synchronisation; returns `also`."""
        kinds = ("losses", "sketches", "lengths", "bias", "total")
        parts = [getattr(report, kind) for report in reports for kind in kinds]
        arrays = iter(to_host(*also, *parts, *((self.pairwise, self._short) if reports else ())))
        found = [next(arrays) for _ in also]
        for report in reports:
            losses, sketches, lengths, bias, total = (next(arrays) for _ in kinds)
            require_finite(round, total, self._runs, report.run, report.clients)
            for i in np.unique(report.run).tolist():
                mine, run = rows_of(i, report.run), self._runs[i]
                if "losses" in run.needs:
                    require_losses(round, losses[mine], run)
                    run.store.observe(report.clients[mine], losses=losses[mine])
                if sketches.shape[1] and i in self.informed:
                    run.store.observe(report.clients[mine], updates=sketches[mine])
                if len(lengths) and i in self._users["lengths"]:
                    run.store.observe(report.clients[mine], lengths=lengths[mine])
                if len(bias) and i in self._users["bias_updates"]:
                    run.store.observe(report.clients[mine], bias_updates=bias[mine])
        if reports:
            self._show(*arrays)
        return found

    def _show(self, pairwise: Floats, short: Floats) -> None:
        """Set the distances for the selectors; recompute them if too many lost precision."""
        if short:
            self._short.zero_()
            self.pairwise = distances(self.updates)
            (pairwise,) = to_host(self.pairwise)
        self.distances = {} if self._sketch else dict(zip(self.informed, pairwise, strict=True))

    @property
    def nbytes(self) -> int:
        """About how many bytes `state` has."""
        sketches = 4 * (self._sketch or 0) * len(self.informed) * len(self._runs[0].store)
        return int(sketches + self.updates.nbytes + self.pairwise.nbytes)

    def state(self) -> dict[str, NDArray[Any]]:
        """The whole state as plain arrays."""
        stores = [run.store.state_dict() for run in self._runs]
        kept = [key for key in stores[0] if key not in _ELSEWHERE]
        state = {f"store.{key}": np.stack([store[key] for store in stores]) for key in kept}
        if self._sketch and self.informed:
            state["sketches"] = np.stack([stores[i]["updates"] for i in self.informed])
        for name, (dtype, shape) in self._optional_layout().items():
            rows = [stores[i].get(name.removeprefix(_SIGNAL)) for i in self._users[name.removeprefix(_SIGNAL)]]
            empty = np.full(shape[1:], np.nan, dtype)
            filled = [empty if row is None else row for row in rows[: shape[0]]]
            state[name] = np.array(filled, dtype).reshape(shape)
        return state | {"updates": self.updates.cpu().numpy(), "distances": self.pairwise.cpu().numpy()}

    def layout(self) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """The type and shape of every array that `state` returns."""
        store, runs = self._runs[0].store.state_dict(), len(self._runs)
        kept = {key: array for key, array in store.items() if key not in _ELSEWHERE}
        found = {f"store.{key}": (array.dtype, (runs, *array.shape)) for key, array in kept.items()}
        if self._sketch and self.informed:
            found["sketches"] = np.dtype(np.float32), (len(self.informed), len(self._runs[0].store), self._sketch)
        whole = {"updates": self.updates, "distances": self.pairwise}
        return (
            found
            | self._optional_layout()
            | {key: (np.dtype(np.float32), tuple(array.shape)) for key, array in whole.items()}
        )

    def _optional_layout(self) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """Of what is known beside losses and updates, with a row for each run that uses it."""
        clients, found = len(self._runs[0].store), {}
        for name, shape in {
            "durations": (clients,),
            "lengths": (clients,),
            "bias_updates": (clients, self._classes),
        }.items():
            rows = len(self._users[name]) if shape[-1] else 0
            found[f"{_SIGNAL}{name}"] = np.dtype(np.float64), (rows, *shape)
        return found

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned, if it has the `layout`."""
        self.updates = to_device(state["updates"], self._device)
        self.pairwise = to_device(state["distances"], self._device)
        self._show(*to_host(self.pairwise, self._short))
        for i, run in enumerate(self._runs):
            stored = {key.removeprefix("store."): state[key][i] for key in state if key.startswith("store.")}
            stored["history"] = selections(run.cohorts)
            if "sketches" in state and i in self.informed:
                stored["updates"] = state["sketches"][self.informed.index(i)]
            for key in self._optional_layout():
                users = self._users[key.removeprefix(_SIGNAL)]
                values = state[key][users.index(i)] if i in users and state[key].size else np.zeros(0)
                if values.size and not np.isnan(values).all():
                    stored[key.removeprefix(_SIGNAL)] = values
            if i in self._users["label_counts"] and (counts := run.store.signals(0).label_counts) is not None:
                stored["label_counts"] = counts
            run.store.load_state_dict(stored)


def _wanted(run: Run, sketch: int | None) -> frozenset[str]:
    """The signals that a run's selector needs, and its guard: that shortens distances by the lengths of updates."""
    whole = run.store.guard and "updates" in run.needs and not sketch
    return run.needs | ({"lengths"} if whole else set())
