"""What the lanes remember of their clients between rounds.

Losses and sketches are in the lanes' stores, on the host. Whole updates stay on the device; only the distances between
them come to the host. Whatever comes from there comes at once: while the server waits, the device would have nothing
to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equifl.signals import Floats, Ints
from equifl.sim.engines.torch.transfers import to_device, to_host
from equifl.sim.loop.pairwise_distances import distances, renew
from equifl.sim.loop.runs import Lane, require_finite, rows_of, selections
from equifl.sim.loop.sketching import sketched

_ON_THE_WAY = 2**24  # numbers of sketches that wait to be learnt


@dataclass(frozen=True)
class News:
    """What clients told, on the device still; a row a client, lane after lane."""

    owner: Ints
    clients: Ints
    losses: Tensor  # (M,)
    sketches: Tensor  # (M, length), or nothing
    total: Tensor  # (M,) finite if all is that they told


class Memory:
    """Of all lanes.

    Args:
        lanes: the runs.
        parameters: the length of an update.
        sketch: the length of a sketch, if sketches are remembered and not updates.
        device: where the updates are.

    Attributes:
        informed: the R lanes whose selectors look at updates.
        updates: (R, N, d) theirs, if they are remembered whole.
        apart: (R, N, N) the distances between them.
        distances: (N, N) of each of these lanes, as its selector is to see them.
    """

    def __init__(self, lanes: Sequence[Lane], parameters: int, sketch: int | None, device: torch.device) -> None:
        self._lanes, self._sketch, self._device = lanes, sketch, device
        self.informed = [i for i, lane in enumerate(lanes) if "updates" in lane.needs]
        whole, clients = ([] if sketch else self.informed), len(lanes[0].store)
        self.updates = torch.full((len(whole), clients, parameters), torch.nan, device=device)
        self.apart = torch.full((len(whole), clients, clients), torch.nan, device=device)
        self.distances: dict[int, Floats] = {}
        self._short = torch.zeros((), dtype=torch.int64, device=device)  # so many distances lack digits

    def keep(self, owner: Ints, clients: Ints, updates: Tensor, losses: Tensor, total: Tensor) -> News:
        """What can be kept on the device is kept there; the rest is news. Nothing is waited for."""
        rows = np.flatnonzero(np.isin(owner, self.informed))
        sketches = losses.new_zeros(len(owner), self._sketch or 0 if len(rows) else 0)
        for i in np.unique(owner[rows]).tolist() if self._sketch else ():
            mine, sketch = rows_of(i, owner), self._lanes[i].store.sketch
            assert sketch is not None
            sketches[mine] = sketched(updates[mine], sketch)
        if self._sketch is None and len(rows):
            place, told = np.searchsorted(self.informed, owner[rows]), clients[rows]
            lane, client, row = (to_device(array, self._device) for array in (place, told, rows))
            self.updates[lane, client] = updates[row]
            lanes = np.unique(place)
            heard = [told[place == lane] for lane in lanes]
            self._short += renew(self.apart, self.updates, lanes.tolist(), heard, wait=False)
        return News(owner, clients, losses, sketches, total)

    def learn_of_everyone(self, round: int, news: Iterable[News]) -> None:
        """What comes of all clients: at once, unless there are so many that their sketches fill the memory."""
        waiting: list[News] = []
        for new in news:
            waiting.append(new)
            if sum(each.sketches.numel() for each in waiting) > _ON_THE_WAY:
                self.learn(round, waiting)
                waiting = []
        if waiting:
            self.learn(round, waiting)

    def learn(self, round: int, news: Sequence[News], *also: Tensor) -> list[Floats]:
        """The wait for the device: what stores and selectors look at comes from there at once, and `also` with it."""
        told = [tensor for new in news for tensor in (new.losses, new.sketches, new.total)]
        arrays = iter(to_host(*also, *told, *((self.apart, self._short) if news else ())))
        found = [next(arrays) for _ in also]
        for new in news:
            losses, sketches, total = (next(arrays) for _ in range(3))
            require_finite(round, total, self._lanes, new.owner, new.clients)
            for i in np.unique(new.owner).tolist():
                mine, lane = rows_of(i, new.owner), self._lanes[i]
                if "losses" in lane.needs:
                    lane.store.observe(new.clients[mine], losses=losses[mine])
                if sketches.shape[1] and i in self.informed:
                    lane.store.observe(new.clients[mine], updates=sketches[mine])
        if news:
            self._look(*arrays)
        return found

    def _look(self, apart: Floats, short: Floats) -> None:
        """The distances for the selectors; computed once more, if too many of them had lost their digits."""
        if short:
            self._short.zero_()
            self.apart = distances(self.updates)
            (apart,) = to_host(self.apart)
        self.distances = {} if self._sketch else dict(zip(self.informed, apart, strict=True))

    def state(self) -> dict[str, NDArray[Any]]:
        """All of it, as plain arrays."""
        stores = [lane.store.state_dict() for lane in self._lanes]
        kept = [key for key in stores[0] if key not in ("updates", "history")]  # the records hold the history
        state = {f"store.{key}": np.stack([store[key] for store in stores]) for key in kept}
        if self._sketch and self.informed:
            state["sketches"] = np.stack([stores[i]["updates"] for i in self.informed])
        return state | {"updates": self.updates.cpu().numpy(), "apart": self.apart.cpu().numpy()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        self.updates = torch.from_numpy(state["updates"]).to(self._device)
        known = "apart" in state  # a checkpoint may be older than that
        self.apart = torch.from_numpy(state["apart"]).to(self._device) if known else distances(self.updates)
        self._look(*to_host(self.apart, self._short))
        for i, lane in enumerate(self._lanes):
            stored = {key.removeprefix("store."): state[key][i] for key in state if key.startswith("store.")}
            stored["history"] = selections(lane.cohorts)
            if "sketches" in state and i in self.informed:
                stored["updates"] = state["sketches"][self.informed.index(i)]
            lane.store.load_state_dict(stored)
