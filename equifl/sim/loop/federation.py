"""The round loop, reading as Algorithm 1 of the paper, for many lanes at once.

A lane is one run: a selector and a seed. Lanes with the same seed live in the same world: the same partition,
initial model, batches, availability and dropouts, so that selectors are compared in pairs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.extras import needed_by

with needed_by("equifl.sim"):
    import torch
    from torch import Tensor, nn

from equifl.experiment.config import Config, make_selector
from equifl.metrics import fairness, participation, round_bytes
from equifl.selectors.explanation import select_and_explain
from equifl.signals import Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.choose import choose_engine
from equifl.sim.engines.torch.engine import Engine, Sgd
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.engines.torch.transfers import to_device, to_host
from equifl.sim.loop.client_memory import Memory, News
from equifl.sim.loop.environment import World, remarks, resolved
from equifl.sim.loop.runs import Lane, LocalUpdates, Replies, pairs, require_finite, rows_of, stack
from equifl.sim.models.validation import examples_of
from equifl.sim.models.zoo import make_module
from equifl.sketch import CountSketch
from equifl.store import SignalStore

log = logging.getLogger(__name__)

_AT_A_TIME = 2**24  # numbers of clients' weights and examples, where everyone is asked


class Federation:
    """All lanes of a configuration, in lockstep; by `engine`, if that is given, and not the configuration's.

    Attributes:
        models: (lanes, d) the global models, a row a lane.
    """

    def __init__(self, config: Config, dataset: Dataset, *, device: str, engine: str | None = None) -> None:
        self.config = config = resolved(config, dataset)
        train, shape, examples = config.train, dataset.x_train.shape[1:], examples_of(dataset)

        def module() -> nn.Module:
            return make_module(train.model, shape, dataset.classes, train.model_options, examples)

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # what a model can do is tried out: always with the same weights
            self.model = StackedModel.of(module(), shape, examples)
        self.engine = choose_engine(self.model, dataset, device, engine or config.engine)
        options = ("lr", "batch_size", "steps", "epochs", "momentum", "weight_decay")
        self.sgd = Sgd(**{name: getattr(train, name) for name in options}, tf32=bool(train.tf32))
        worlds = {seed: World.make(config, dataset, seed) for seed in config.seeds}
        for remark in remarks(config, dataset, worlds.values()):
            log.info(remark)
        self.lanes = [
            Lane(name, make_selector(name, options), world, self._new_store(world), [])
            for name, options in config.selectors.items()
            for world in worlds.values()
        ]
        initial = {seed: world.initial_weights(module) for seed, world in worlds.items()}
        self.models = torch.stack([initial[lane.world.seed] for lane in self.lanes]).to(self.engine.device)
        self.memory = Memory(self.lanes, self.model.parameters, config.sketch, self.engine.device)
        self.recent = self.models.unsqueeze(1)  # (lanes, up to average_last, d)
        self.rounds_played = 0
        if config.memory_limit is not None and isinstance(self.engine, Engine):
            models = max(len(self.lanes) * config.largest_cohort, len(next(self._everyone())))
            self.engine.stay_within(config.memory_limit, models=models, batch=self.sgd.batch_size)

    def _new_store(self, world: World) -> SignalStore:
        length = self.config.sketch
        sketch = None if length is None else CountSketch(length=length, seed=world.seed)
        server = self.config.server
        catch_up = 1 if server.catch_up is None else server.catch_up
        return SignalStore(len(world.sizes), sizes=world.sizes, catch_up=catch_up, guard=server.guard, sketch=sketch)

    def play(self) -> list[dict[str, Any]]:
        """One round of every lane; a record of each.

        Only `Memory.learn` waits for the device, once a round, and once more where everyone is asked before it; and
        evaluating does.
        """
        round = self.rounds_played
        if self.config.signal == "gradient":
            self.memory.learn_of_everyone(round, self._ask_everyone())
        elif round == 0:
            self.memory.learn_of_everyone(round, self._introduce_everyone())
        cohorts, records = self._select(round)
        replies = self._train_locally(round, cohorts)
        models = self._aggregate(replies)
        self._hear(replies, records)
        self.models = models
        self.recent = torch.cat([self.recent, models.unsqueeze(1)], dim=1)[:, -self.config.server.average_last :]
        self.rounds_played += 1
        if self.rounds_played % self.config.evaluate_every == 0 or self.rounds_played == self.config.rounds:
            self._evaluate(records)
        return records

    def _select(self, round: int) -> tuple[list[Ints], list[dict[str, Any]]]:
        """Line 3: every lane's selector picks its cohort S_k."""
        cohorts, records = [], []
        for i, lane in enumerate(self.lanes):
            signals = lane.store.signals(round, available=lane.world.available(round))
            if i in self.memory.distances:
                signals = replace(signals, distances=self.memory.distances[i])
            k = min(self.config.cohort_size(round), int(signals.available.sum()))
            cohort, why = np.zeros(0, np.int64), dict[str, Any]()
            if k:
                rng = lane.world.stream("selection", round)
                cohort, why = select_and_explain(lane.selector, signals, k, rng=rng, name=f"selectors.{lane.name}")
            lane.store.observe(cohort, round=round)
            lane.cohorts.append(cohort)
            cohorts.append(cohort)
            record = {"round": round, "selector": lane.name, "seed": lane.world.seed, "cohort": cohort.tolist()}
            records.append(record | why)
        return cohorts, records

    def _train_locally(self, round: int, cohorts: list[Ints]) -> Replies:
        """Lines 4 to 11: every selected client trains from its lane's model on its own batches."""
        sent = [cohort[~lane.world.drops_out(round)[cohort]] for lane, cohort in zip(self.lanes, cohorts, strict=True)]
        owner = np.repeat(np.arange(len(self.lanes)), [len(ids) for ids in sent])
        clients = np.concatenate(sent)
        received = self.models[to_device(owner, self.engine.device)]
        local = self._local_sgd(owner, clients, received, round)
        return Replies(owner, clients, local, self._losses_heard(owner, clients, received))

    def _hear(self, replies: Replies, records: list[dict[str, Any]]) -> None:
        """What the server looks at of the replies: signals for its selectors, numbers for its records."""
        owner, clients, local, news = replies.owner, replies.clients, replies.local, []
        if self.config.signal == "update":
            updates = local.updates / local.scale[:, None] if self.memory.informed else local.updates
            news = [self.memory.keep(owner, clients, updates, replies.losses, local.total)]
        last_loss, total = self.memory.learn(self.rounds_played, news, local.last_loss, local.total)
        require_finite(self.rounds_played, total, self.lanes, owner, clients)
        for i, (lane, record) in enumerate(zip(self.lanes, records, strict=True)):
            mine = last_loss[rows_of(i, owner)]
            record["local_loss"] = float(mine.mean()) if len(mine) else None
            record |= self._bytes(lane, len(record["cohort"]), len(mine))

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
        updates = torch.sub(weights, trained.weights, out=trained.weights)  # which nobody needs any more
        return LocalUpdates(updates, trained.last_loss, trained.steps * self.sgd.lr, total)

    def _losses_heard(self, owner: Ints, clients: Ints, received: Tensor) -> Tensor:
        """(M,) each client's loss at the model it received, where anybody looks at it; else nan."""
        losses = torch.full((len(owner),), torch.nan, device=self.engine.device)
        everyone = self.config.server.aggregate == "loss"
        wanted = [everyone or (self.config.signal == "update" and "losses" in lane.needs) for lane in self.lanes]
        rows = np.flatnonzero(np.array(wanted)[owner]) if len(owner) else owner
        if len(rows):
            examples = [self.lanes[lane].world.signal_examples(c) for lane, c in pairs(owner[rows], clients[rows])]
            there = to_device(rows, self.engine.device)
            losses[there] = self.engine.losses(received[there], stack(examples))
        return losses

    def _aggregate(self, replies: Replies) -> Tensor:
        """Line 13: w_{k+1} = w_k - lr * weighted mean of the updates; without replies the model stays."""
        models = self.models.clone()
        if not len(replies.owner):
            return models
        shares = self._shares(replies)
        for i in np.unique(replies.owner).tolist():
            mine = rows_of(i, replies.owner)
            models[i] -= self.config.server.lr * (shares[mine] @ replies.local.updates[mine])
        return models

    def _shares(self, replies: Replies) -> Tensor:
        """(M,) what each reply counts for in its lane."""
        owner, server, device = replies.owner, self.config.server, self.engine.device
        if server.aggregate == "loss":
            weights = replies.losses.double() ** server.q
        else:
            sizes = [self.lanes[lane].world.sizes[client] for lane, client in pairs(owner, replies.clients)]
            weights = to_device(np.array(sizes) if server.aggregate == "size" else np.ones(len(owner)), device)
        rank, count = np.arange(len(owner)) - np.searchsorted(owner, owner), np.bincount(owner)
        lane, place, equal = (to_device(array, device) for array in (owner, rank, 1 / count[owner]))
        table = torch.zeros(len(count), int(count.max()), dtype=torch.float64, device=device)
        table[lane, place] = weights
        total = table.sum(dim=1)[lane]
        return torch.where(total > 0, weights / total, equal).float()

    def _everyone(self) -> Iterator[Ints]:
        """All clients, so many at a time that what is computed of them fits the memory, however many there are."""
        examples = max(int(lane.world.sizes.max()) for lane in self.lanes)
        batches = self.sgd.batch_size * (self.sgd.steps or (self.sgd.epochs or 1) * examples)
        step = max(1, _AT_A_TIME // (self.model.parameters + examples + batches))
        clients = len(self.lanes[0].world.sizes)
        for start in range(0, clients, step):
            yield np.arange(start, min(start + step, clients))

    def _ask_everyone(self) -> Iterator[News]:
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
                yield self.memory.keep(np.full(len(clients), i), clients, gradients, losses, losses)

    def _introduce_everyone(self) -> Iterator[News]:
        """Stale signals: every client is heard once before the first round. Lanes of a seed hear the same."""
        for seed in self.config.seeds:
            lanes = [i for i, lane in enumerate(self.lanes) if lane.world.seed == seed and lane.needs]
            for clients in self._everyone() if lanes else ():
                owner = np.full(len(clients), lanes[0])
                weights = self.models[lanes[0]].expand(len(clients), -1)
                examples = stack([self.lanes[lanes[0]].world.signal_examples(client) for client in clients.tolist()])
                losses = self.engine.losses(weights, examples)
                updates, total = torch.zeros(0), losses
                if any("updates" in self.lanes[i].needs for i in lanes):
                    heard = self._local_sgd(owner, clients, weights, round=-1)
                    updates, total = heard.updates / heard.scale[:, None], heard.total
                for i in lanes:
                    yield self.memory.keep(np.full(len(clients), i), clients, updates, losses, total)

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
        losses = to_host(*[self._global_loss(i, lane) for i, lane in enumerate(self.lanes)])
        for record, loss in zip(records, losses, strict=True):
            record["global_loss"] = float(loss)

    def _global_loss(self, i: int, lane: Lane) -> Tensor:
        """f(w): the mean over clients of their loss at the evaluated model."""
        weights = self.recent[i].mean(dim=0)
        losses = []
        for clients in self._everyone():
            examples = stack([lane.world.signal_examples(client) for client in clients.tolist()])
            losses.append(self.engine.losses(weights.expand(len(clients), -1), examples))
        return torch.cat(losses).mean()

    def _bytes(self, lane: Lane, asked: int, replied: int) -> dict[str, int]:
        n, fresh = len(lane.world.sizes), self.config.signal == "gradient"
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
        models = {"models": self.models.cpu().numpy(), "recent": self.recent.cpu().numpy()}
        return self.memory.state() | models | {"rounds_played": np.array(self.rounds_played)}

    def load_state(self, state: Mapping[str, NDArray[Any]], cohorts: Mapping[tuple[str, int], list[Ints]]) -> None:
        """Go on from what `state` gave; `cohorts` are those of each (selector, seed) so far, from the records."""
        for name in ("models", "recent"):
            if name in state:  # a checkpoint may be older than one of them
                setattr(self, name, torch.from_numpy(state[name]).to(self.engine.device))
        for lane in self.lanes:
            lane.cohorts = list(cohorts[lane.name, lane.world.seed])
        self.memory.load_state(state)
        self.rounds_played = int(state["rounds_played"])
