"""The round loop, reading as Algorithm 1 of the paper, for many lanes at once.

A lane is one run: a selector and a seed. Lanes with the same seed live in the same world: the same partition,
initial model, batches, availability and dropouts, so that selectors are compared in pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from equifl.config import Config, make_selector
from equifl.metrics import fairness, participation, round_bytes
from equifl.selectors.explanation import explanation
from equifl.selectors.rules import require_cohort
from equifl.signals import Floats, Ints
from equifl.sim.apart import distances, renew
from equifl.sim.data import Dataset
from equifl.sim.engine import Engine, Sgd
from equifl.sim.engines import choose_engine
from equifl.sim.lanes import Lane, LocalUpdates, Replies, pairs, stack
from equifl.sim.models import make_module
from equifl.sim.sketching import sketched
from equifl.sim.stacked import StackedModel
from equifl.sim.world import World
from equifl.sketch import CountSketch
from equifl.store import SignalStore

_TENSORS = ("models", "updates", "apart", "recent")  # that the next round depends on
_AT_A_TIME = 2**24  # numbers of clients' weights and examples, where everyone is asked


class Federation:
    """All lanes of a configuration, in lockstep; by `engine`, if that is given, and not the configuration's.

    Attributes:
        models: (lanes, d) the global models, a row a lane.
    """

    def __init__(self, config: Config, dataset: Dataset, *, device: str, engine: str | None = None) -> None:
        self.config = config
        train = config.train

        def module() -> nn.Module:
            return make_module(train.model, dataset.x_train.shape[1:], dataset.classes, train.model_options)

        self.model = StackedModel.of(module(), dataset.x_train.shape[1:])
        self.engine = choose_engine(self.model, dataset, device, engine or config.engine)
        options = ("lr", "batch_size", "steps", "epochs", "momentum", "weight_decay")
        self.sgd = Sgd(**{name: getattr(train, name) for name in options})
        worlds = {seed: World.make(config, dataset, seed) for seed in config.seeds}
        self.lanes = [
            Lane(name, make_selector(name, options), world, self._new_store(world), [])
            for name, options in config.selectors.items()
            for world in worlds.values()
        ]
        initial = {seed: world.initial_weights(module) for seed, world in worlds.items()}
        self.models = torch.stack([initial[lane.world.seed] for lane in self.lanes]).to(self.engine.device)
        # Updates stay on the device, and only distances between them come to the host; or their sketches do.
        self._informed = [i for i, lane in enumerate(self.lanes) if "updates" in lane.needs]
        whole = config.sketch is None
        size = (len(self._informed), config.clients, self.model.parameters) if whole else (0, 0, 0)
        self.updates = torch.full(size, torch.nan, device=self.engine.device)
        self.apart = torch.full((*size[:2], size[1]), torch.nan, device=self.engine.device)
        self.recent = self.models.unsqueeze(1)  # (lanes, up to average_last, d)
        self.rounds_played = 0
        if config.memory_limit is not None and isinstance(self.engine, Engine):
            models = max(len(self.lanes) * config.per_round, len(next(self._everyone())))
            self.engine.stay_within(config.memory_limit, models=models, batch=self.sgd.batch_size)

    def _new_store(self, world: World) -> SignalStore:
        length = self.config.sketch
        sketch = None if length is None else CountSketch(length=length, seed=world.seed)
        return SignalStore(self.config.clients, sizes=world.sizes, guard=self.config.server.guard, sketch=sketch)

    def play(self) -> list[dict[str, Any]]:
        """One round of every lane; a record of each."""
        round = self.rounds_played
        if self.config.signal == "gradient":
            self._ask_everyone()
        elif round == 0:
            self._introduce_everyone()
        cohorts, records = self._select(round)
        trained = self._train_locally(round, cohorts, records)
        self._aggregate(trained)
        self.rounds_played += 1
        if self.rounds_played % self.config.evaluate_every == 0 or self.rounds_played == self.config.rounds:
            self._evaluate(records)
        return records

    def _select(self, round: int) -> tuple[list[Ints], list[dict[str, Any]]]:
        """Line 3: every lane's selector picks its cohort S_k."""
        cohorts, records = [], []
        whole = self._informed if self.config.sketch is None else []
        apart = dict(zip(whole, self.apart.cpu().numpy().copy(), strict=True)) if whole else {}
        for i, lane in enumerate(self.lanes):
            signals = lane.store.signals(round, available=lane.world.available(round))
            if i in apart:
                signals = replace(signals, distances=apart[i])
            k = min(self.config.per_round, int(signals.available.sum()))
            cohort = np.zeros(0, np.int64)
            if k:
                chosen = lane.selector.select(signals, k, rng=lane.world.stream("selection", round))
                cohort = require_cohort(chosen, signals, k, f"selectors.{lane.name}")
            lane.store.observe(cohort, round=round)
            lane.cohorts.append(cohort)
            cohorts.append(cohort)
            record = {"round": round, "selector": lane.name, "seed": lane.world.seed, "cohort": cohort.tolist()}
            records.append(record | explanation(lane.selector, signals, cohort))
        return cohorts, records

    def _train_locally(self, round: int, cohorts: list[Ints], records: list[dict[str, Any]]) -> list[Replies]:
        """Lines 4 to 11: every selected client trains from its lane's model on its own batches."""
        sent = [cohort[~lane.world.drops_out(round)[cohort]] for lane, cohort in zip(self.lanes, cohorts, strict=True)]
        owner = np.repeat(np.arange(len(self.lanes)), [len(ids) for ids in sent])
        clients = np.concatenate(sent)
        received = self.models[owner]
        replies = self._local_sgd(owner, clients, received, round)
        heard = self._losses_heard(owner, clients, received)
        # All is under way on the device; the numbers that the server looks at come from there at once.
        last_loss, losses, total = torch.stack([replies.last_loss, heard, replies.total]).cpu().numpy()
        self._require_finite(total, owner, clients)
        if self.config.signal == "update":
            self._remember(owner, clients, replies.updates / replies.scale[:, None], losses)
        result = []
        for i, (lane, record) in enumerate(zip(self.lanes, records, strict=True)):
            mine = np.flatnonzero(owner == i)
            sizes = lane.world.sizes[clients[mine]]
            result.append(Replies(clients[mine], replies.updates[mine], losses[mine].astype(np.float64), sizes))
            record["local_loss"] = float(last_loss[mine].mean()) if len(mine) else None
            record |= self._bytes(lane, len(cohorts[i]), len(mine))
        return result

    def _local_sgd(self, owner: Ints, clients: Ints, weights: Tensor, round: int) -> LocalUpdates:
        """w_k - w_k^(i) of each client, and steps times learning rate, which makes it comparable to a gradient."""
        if not len(clients):
            empty = torch.zeros(0, device=self.engine.device)
            return LocalUpdates(weights, empty, empty, empty)
        made: dict[tuple[int, int], Ints] = {}  # lanes of a seed share the batches
        for lane, client in pairs(owner, clients):
            world = self.lanes[lane].world
            if (world.seed, client) not in made:
                made[world.seed, client] = world.batches(self.sgd, round, client)
        batches = [made[self.lanes[lane].world.seed, client] for lane, client in pairs(owner, clients)]
        trained = self.engine.train(weights, stack(batches), self.sgd)
        total = trained.last_loss + trained.weights.sum(dim=1)
        return LocalUpdates(weights - trained.weights, trained.last_loss, trained.steps * self.sgd.lr, total)

    def _require_finite(self, numbers: Floats, owner: Ints, clients: Ints) -> None:
        """Nothing is learnt from what is no number: stop, and say whose it was."""
        wrong = np.flatnonzero(~np.isfinite(numbers))
        if len(wrong):
            lane = self.lanes[owner[wrong[0]]]
            who = ", ".join(map(str, clients[wrong[owner[wrong] == owner[wrong[0]]]][:5]))
            where = f"round {self.rounds_played}, {lane.name}, seed {lane.world.seed}"
            raise ValueError(f"{where}: the losses or weights of clients {who} are not finite; try a smaller train.lr")

    def _losses_heard(self, owner: Ints, clients: Ints, received: Tensor) -> Tensor:
        """(M,) each client's loss at the model it received, where anybody looks at it; else nan."""
        losses = torch.full((len(owner),), torch.nan, device=self.engine.device)
        everyone = self.config.server.aggregate == "loss"
        wanted = [everyone or (self.config.signal == "update" and "losses" in lane.needs) for lane in self.lanes]
        rows = np.flatnonzero(np.array(wanted)[owner]) if len(owner) else owner
        if len(rows):
            examples = [self.lanes[lane].world.signal_examples(c) for lane, c in pairs(owner[rows], clients[rows])]
            losses[rows] = self.engine.losses(received[rows], stack(examples))
        return losses

    def _aggregate(self, replies: Iterable[Replies]) -> None:
        """Line 13: w_{k+1} = w_k - lr * weighted mean of the updates; without replies the model stays."""
        server = self.config.server
        models = self.models.clone()
        for i, reply in enumerate(replies):
            if not len(reply.clients):
                continue
            weights = {"mean": np.ones(len(reply.clients)), "size": reply.sizes, "loss": reply.losses**server.q}
            share = weights[server.aggregate]
            share = share / share.sum() if share.sum() > 0 else np.full(len(share), 1 / len(share))
            mean = torch.from_numpy(share.astype(np.float32)).to(models.device) @ reply.updates
            models[i] -= server.lr * mean
        self.models = models
        self.recent = torch.cat([self.recent, models.unsqueeze(1)], dim=1)[:, -server.average_last :]

    def _everyone(self) -> Iterator[Ints]:
        """All clients, so many at a time that what is computed of them fits the memory, however many there are."""
        examples = max(int(lane.world.sizes.max()) for lane in self.lanes)
        batches = self.sgd.batch_size * (self.sgd.steps or (self.sgd.epochs or 1) * examples)
        step = max(1, _AT_A_TIME // (self.model.parameters + examples + batches))
        for start in range(0, self.config.clients, step):
            yield np.arange(start, min(start + step, self.config.clients))

    def _ask_everyone(self) -> None:
        """Fresh signals: every client's loss, and gradient where it is looked at, at its lane's current model."""
        for i, lane in enumerate(self.lanes):
            for clients in self._everyone() if lane.needs else ():
                examples = stack([lane.world.signal_examples(client) for client in clients.tolist()])
                weights = self.models[i].expand(len(clients), -1)
                gradients = torch.zeros(0)
                if "updates" in lane.needs:
                    losses, gradients = self.engine.gradients(weights, examples)
                else:
                    losses = self.engine.losses(weights, examples)
                owner, heard = np.full(len(clients), i), losses.cpu().numpy()
                self._require_finite(heard, owner, clients)
                self._remember(owner, clients, gradients, heard)

    def _introduce_everyone(self) -> None:
        """Stale signals: every client is heard once before the first round. Lanes of a seed hear the same."""
        for seed in self.config.seeds:
            lanes = [i for i, lane in enumerate(self.lanes) if lane.world.seed == seed and lane.needs]
            for clients in self._everyone() if lanes else ():
                owner = np.full(len(clients), lanes[0])
                weights = self.models[owner]
                examples = stack([self.lanes[lanes[0]].world.signal_examples(client) for client in clients.tolist()])
                losses = self.engine.losses(weights, examples).cpu().numpy()
                updates = torch.zeros(0)
                if any("updates" in self.lanes[i].needs for i in lanes):
                    heard = self._local_sgd(owner, clients, weights, round=-1)
                    self._require_finite(heard.total.cpu().numpy(), owner, clients)
                    updates = heard.updates / heard.scale[:, None]
                for i in lanes:
                    self._remember(np.full(len(clients), i), clients, updates, losses)

    def _remember(self, owner: Ints, clients: Ints, updates: Tensor, losses: Floats) -> None:
        """What clients told the lanes that own these rows, as far as their selectors look at it."""
        for i in np.unique(owner):
            lane, mine = self.lanes[i], np.flatnonzero(owner == i)
            if "losses" in lane.needs:
                lane.store.observe(clients[mine], losses=losses[mine])
            if "updates" in lane.needs and lane.store.sketch is not None:
                lane.store.observe(clients[mine], updates=sketched(updates[mine], lane.store.sketch).cpu().numpy())
        rows = np.flatnonzero(np.isin(owner, self._informed))
        if self.config.sketch is None and len(rows):
            place = np.searchsorted(self._informed, owner[rows])
            self.updates[torch.from_numpy(place), torch.from_numpy(clients[rows])] = updates[rows]
            lanes = np.unique(place)
            renew(self.apart, self.updates, lanes.tolist(), [clients[rows][place == lane] for lane in lanes])

    def _evaluate(self, records: list[dict[str, Any]]) -> None:
        correct = self.engine.correct(self.recent.mean(dim=1))
        for i, (lane, record) in enumerate(zip(self.lanes, records, strict=True)):
            by_client = np.array([correct[i, test].mean() for test in lane.world.partition.test])
            tested = np.concatenate(lane.world.partition.test)
            record["accuracy"] = 100.0 * float(correct[i, tested].mean())
            record |= fairness(by_client)
            record["client_accuracy"] = [round(100.0 * float(value), 4) for value in by_client]
            times = lane.store.signals(self.rounds_played).times_selected
            record["participation"] = participation(times, lane.cohorts)
            record["global_loss"] = self._global_loss(i, lane)

    def _global_loss(self, i: int, lane: Lane) -> float:
        """f(w): the mean over clients of their loss at the evaluated model."""
        weights = self.recent[i].mean(dim=0)
        losses = []
        for clients in self._everyone():
            examples = stack([lane.world.signal_examples(client) for client in clients.tolist()])
            losses.append(self.engine.losses(weights.expand(len(clients), -1), examples))
        return float(torch.cat(losses).mean())

    def _bytes(self, lane: Lane, asked: int, replied: int) -> dict[str, int]:
        n, fresh = self.config.clients, self.config.signal == "gradient"
        count = partial(round_bytes, clients=n, parameters=self.model.parameters, needs=lane.needs, fresh=fresh)
        count = partial(count, sketch=self.config.sketch)
        down, up = count(cohort=asked, replied=replied)
        if not fresh and self.rounds_played == 0 and lane.needs:  # everyone is introduced
            down, up = np.add((down, up), count(cohort=0, replied=0, fresh=True)).tolist()
        if self.config.server.aggregate == "loss" and "losses" not in lane.needs:
            up += 4 * replied
        return {"bytes_down": down, "bytes_up": up}

    def state(self) -> dict[str, NDArray[Any]]:
        """All that the next round depends on, as plain arrays."""
        stores = [lane.store.state_dict() for lane in self.lanes]
        state = {f"store.{key}": np.stack([store[key] for store in stores]) for key in stores[0] if key != "updates"}
        if self.config.sketch is not None and self._informed:
            state["sketches"] = np.stack([stores[i]["updates"] for i in self._informed])
        state |= {name: getattr(self, name).cpu().numpy() for name in _TENSORS}
        return state | {"rounds_played": np.array(self.rounds_played)}

    def load_state(self, state: Mapping[str, NDArray[Any]], cohorts: Mapping[tuple[str, int], list[Ints]]) -> None:
        """Go on from what `state` gave; `cohorts` are those of each (selector, seed) so far, from the records."""
        for name in _TENSORS:
            if name in state:  # a checkpoint may be older than one of them
                setattr(self, name, torch.from_numpy(state[name]).to(self.engine.device))
        if "apart" not in state:
            self.apart = distances(self.updates)
        for i, lane in enumerate(self.lanes):
            stored = {key.removeprefix("store."): state[key][i] for key in state if key.startswith("store.")}
            if "sketches" in state and i in self._informed:
                stored["updates"] = state["sketches"][self._informed.index(i)]
            lane.store.load_state_dict(stored)
            lane.cohorts = list(cohorts[lane.name, lane.world.seed])
        self.rounds_played = int(state["rounds_played"])
