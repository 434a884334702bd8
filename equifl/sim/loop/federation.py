"""The round loop, reading as Algorithm 1 of the paper, for many runs at once.

A run is a selector and a seed. Runs with the same seed share their environment: the same partition, initial model,
batches, availability and dropouts, so that selectors are compared in pairs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equifl.aggregators import Replies
from equifl.experiment.checkpoint import require_layout, rounds_in
from equifl.experiment.config import Config
from equifl.experiment.selector_tables import make_selector
from equifl.experiment.task_table import TaskFunction, score_of
from equifl.selectors.base import FROM_UPDATES
from equifl.selectors.explanation import select_and_explain
from equifl.signals import Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.base import Job
from equifl.sim.engines.choose import choose_engine
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.engines.torch.transfers import to_device, to_host
from equifl.sim.loop.client_memory import ClientMemory, Reports
from equifl.sim.loop.environment import Environment, remarks, resolved
from equifl.sim.loop.evaluation import Evaluation
from equifl.sim.loop.learning_rate import learning_rate, local_training
from equifl.sim.loop.runs import (
    AllReplies,
    LocalUpdates,
    Run,
    layer_seeds,
    new_store,
    pairs,
    require_finite,
    rows_of,
    stack,
)
from equifl.sim.loop.server_step import ServerStep
from equifl.sim.loop.traffic import time_taken, traffic
from equifl.sim.memory import AT_A_TIME, require_room, run_memory
from equifl.sim.models.trained_weights import output_bias
from equifl.sim.models.validation import examples_of
from equifl.sim.models.zoo import MakeModule, build_module, count_parameters, make_module
from equifl.sim.tasks import make_task, output_shapes, require_usable

log = logging.getLogger(__name__)


class Federation:
    """All runs of a configuration, round by round together.

    `engine` overrides the configuration's; `model` and the task's `functions` are what it has no names for.

    Attributes:
        models: (runs, d) the global models, a row a run.
        note: why a faster engine was not chosen, or "".
    """

    def __init__(
        self,
        config: Config,
        dataset: Dataset,
        *,
        device: str,
        engine: str = "",
        model: MakeModule | None = None,
        functions: Mapping[str, TaskFunction] | None = None,
    ) -> None:
        self.config = config = resolved(config, dataset)
        train, shape, examples = config.train, dataset.x_train.shape[1:], examples_of(dataset)
        built = train.model, shape, dataset.outputs, train.model_options, model
        task = make_task(config.task, dataset, functions)
        first = Environment.make(config, dataset, config.seeds[0])
        everything = len(dataset.y_train) + len(dataset.y_test)
        require_room(run_memory(config, first.sizes, count_parameters(*built), everything, device=device))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # the model is tested, always with the same weights
            module = make_module(*built[:4], examples, model, output_shapes(config.task, dataset))
            require_usable(config.task, task, module, dataset)
            self.model = StackedModel.of(module, shape, examples)
        self.engine, self.note = choose_engine(Job(self.model, dataset, device, task), engine or config.engine)
        self.local = local_training(train, 0, config.rounds)
        environments = {first.seed: first} | {s: Environment.make(config, dataset, s) for s in config.seeds[1:]}
        for remark in remarks(config, dataset, environments.values()):
            log.info(remark)
        self.runs = [
            Run(name, make_selector(name, options), environment, new_store(config, environment), [])
            for name, options in config.selectors.items()
            for environment in environments.values()
        ]
        build = partial(build_module, *built)
        initial = {seed: environment.initial_weights(build) for seed, environment in environments.items()}
        self.models = torch.stack([initial[run.seed] for run in self.runs]).to(self.engine.device)
        bias = output_bias(self.model.module, dataset.outputs)
        self.memory = ClientMemory(self.runs, self.model.parameters, config.sketch, self.engine.device, bias)
        self.evaluation = Evaluation(dataset, score_of(config.as_dict()))
        self.server = ServerStep(config, self.runs, self.model.parameters, self.engine.device)
        self.recent = self.models.unsqueeze(1)  # (runs, up to average_last, d)
        self.rounds_played = 0
        if config.memory_limit is not None:
            models = max(len(self.runs) * config.largest_cohort, *(len(next(self._all_clients(r))) for r in self.runs))
            self.engine.limit_memory(config.memory_limit, models=models, batch=self.local.batch_size)

    def play(self) -> list[dict[str, Any]]:
        """One round of every run; a record of each.

        The device is synchronised once a round, in `ClientMemory.store`, once more if all clients report before it,
        and for evaluation.
        """
        round = self.rounds_played
        if self.config.signal == "gradient":
            self.memory.store_of_everyone(round, self._fresh_reports())
        elif round == 0 and self.config.introduce:
            self.memory.store_of_everyone(round, self._initial_reports())
        cohorts, records = self._select(round)
        replies = self._train_locally(round, cohorts)
        models = self._aggregate(replies)
        self._report(replies, records)
        self.models = models
        self.recent = torch.cat([self.recent, models.unsqueeze(1)], dim=1)[:, -self.config.server.average_last :]
        self.rounds_played += 1
        if self.config.evaluates(round):
            self._evaluate(records)
        return records

    def _select(self, round: int) -> tuple[list[Ints], list[dict[str, Any]]]:
        """Line 3: every run's selector picks its cohort S_k."""
        cohorts, records = [], []
        for i, run in enumerate(self.runs):
            available = run.environment.available(round)
            signals = run.store.signals(round, available=available, distances=self.memory.distances.get(i))
            k = min(self.config.cohort_size(round), int(signals.available.sum()))
            cohort, why = np.zeros(0, np.int64), dict[str, Any]()
            if k:
                rng = run.environment.stream("selection", round)
                cohort, why = select_and_explain(run.selector, signals, k, rng=rng, name=f"selectors.{run.name}")
            self.server.selected(i, signals, cohort)
            run.store.observe(cohort, round=round)
            run.cohorts.append(cohort)
            cohorts.append(cohort)
            record = {"round": round, "selector": run.name, "seed": run.seed, "cohort": cohort.tolist()}
            records.append(record | why | (self.evaluation.mixtures(run) if round == 0 else {}))
        return cohorts, records

    def _train_locally(self, round: int, cohorts: list[Ints]) -> AllReplies:
        """Lines 4 to 11: every selected client trains from its run's model on its own batches."""
        sent = [ids[~run.environment.drops_out(round)[ids]] for run, ids in zip(self.runs, cohorts, strict=True)]
        of_run = np.repeat(np.arange(len(self.runs)), [len(ids) for ids in sent])
        clients = np.concatenate(sent)
        received = self.models[to_device(of_run, self.engine.device)]
        local = self._local_sgd(of_run, clients, received, round)
        return AllReplies(of_run, clients, local, self._reported_losses(of_run, clients, received))

    def _report(self, replies: AllReplies, records: list[dict[str, Any]]) -> None:
        """Store the signals in the replies, and add losses and traffic to the records."""
        of_run, clients, local, reports = replies.run, replies.clients, replies.local, []
        if self.config.signal == "update":
            updates = local.updates / local.scale[:, None] if self.memory.uses_updates else local.updates
            reports = [self.memory.keep(of_run, clients, updates, replies.losses, local.total)]
        last_loss, total = self.memory.store(self.rounds_played, reports, local.last_loss, local.total)
        require_finite(self.rounds_played, total, self.runs, of_run, clients)
        for i, (run, record) in enumerate(zip(self.runs, records, strict=True)):
            mine = last_loss[rows_of(i, of_run)]
            record["local_loss"] = float(mine.mean()) if len(mine) else None
            asked, rule = len(record["cohort"]), self.server.rule.needs
            record |= traffic(run, self.config, self.rounds_played, self.model.parameters, rule, asked, len(mine))
            record |= time_taken(run, self.rounds_played, clients[rows_of(i, of_run)])

    def _local_sgd(self, of_run: Ints, clients: Ints, weights: Tensor, round: int) -> LocalUpdates:
        """w_k - w_k^(i) of each client, and steps times learning rate, which makes it comparable to a gradient."""
        if not len(clients):
            empty = torch.zeros(0, device=self.engine.device)
            return LocalUpdates(weights, empty, empty, empty)
        made: dict[tuple[int, int], Ints] = {}  # runs of a seed share the batches
        for run, client in pairs(of_run, clients):
            environment = self.runs[run].environment
            if (environment.seed, client) not in made:
                made[environment.seed, client] = environment.batches(self.local, round, client)
        batches = [made[self.runs[run].seed, client] for run, client in pairs(of_run, clients)]
        local = local_training(self.config.train, round, self.config.rounds)
        seeds = layer_seeds(self.runs, of_run, clients, round) if self.model.dropout else None
        trained = self.engine.train(weights, stack(batches), local, of_run, seeds)
        total = trained.last_loss + trained.weights.sum(dim=1)
        updates = torch.sub(weights, trained.weights, out=trained.weights)  # not used again
        return LocalUpdates(updates, trained.last_loss, trained.steps * local.lr, total)

    def _reported_losses(self, of_run: Ints, clients: Ints, received: Tensor) -> Tensor:
        """(M,) each client's loss at the model it received, if the selector or aggregator needs it; else nan."""
        losses = torch.full((len(of_run),), torch.nan, device=self.engine.device)
        everyone, stale = "losses" in self.server.rule.needs, self.config.signal == "update"
        wanted = [everyone or (stale and "losses" in run.needs) for run in self.runs]
        rows = np.flatnonzero(np.array(wanted)[of_run]) if len(of_run) else of_run
        if len(rows):
            chosen = pairs(of_run[rows], clients[rows])
            examples = [self.runs[run].environment.signal_examples(client) for run, client in chosen]
            there = to_device(rows, self.engine.device)
            losses[there] = self.engine.losses(received[there], stack(examples), of_run[rows])
        return losses

    def _aggregate(self, replies: AllReplies) -> Tensor:
        """Line 13: w_{k+1} = w_k - lr * step; without replies the model is unchanged."""
        models, round = self.models.clone(), self.rounds_played
        sizes = [self.runs[run].environment.sizes[client] for run, client in pairs(replies.run, replies.clients)]
        weights = to_device(np.array(sizes, np.float64), self.engine.device)
        for i in np.unique(replies.run).tolist():
            mine, run = rows_of(i, replies.run), self.runs[i]
            losses, lr = replies.losses[mine].double(), learning_rate(self.config.train, round, self.config.rounds)
            received = Replies(replies.clients[mine], replies.local.updates[mine], weights[mine], losses, lr=lr)
            models[i] -= self.config.server.lr * self.server.step(i, received, run.cohorts[-1])
        return models

    def _all_clients(self, run: Run) -> Iterator[Ints]:
        """All clients of a run, in parts small enough for the memory."""
        clients, examples = len(run.environment.sizes), int(run.environment.sizes.max())
        batches = self.local.batch_size * (self.local.steps or (self.local.epochs or 1) * examples)
        step = max(1, AT_A_TIME // (self.model.parameters + examples + batches))
        for start in range(0, clients, step):
            yield np.arange(start, min(start + step, clients))

    def _fresh_reports(self) -> Iterator[Reports]:
        """Fresh signals: every client's loss, and gradient where it is needed, at its run's current model."""
        for i, run in enumerate(self.runs):
            for clients in self._all_clients(run) if run.needs & {"losses", *FROM_UPDATES} else ():
                examples = stack([run.environment.signal_examples(client) for client in clients.tolist()])
                weights = self.models[i].expand(len(clients), -1)
                gradients = torch.zeros(0)
                if run.needs & FROM_UPDATES:
                    losses, gradients = self.engine.gradients(weights, examples)
                else:
                    losses = self.engine.losses(weights, examples)
                yield self.memory.keep(np.full(len(clients), i), clients, gradients, losses, losses)

    def _initial_reports(self) -> Iterator[Reports]:
        """Introduction: every client reports once before the first round. Runs of a seed get the same reports."""
        for seed in self.config.seeds:
            runs = [i for i, run in enumerate(self.runs) if run.seed == seed and run.needs & {"losses", *FROM_UPDATES}]
            for clients in self._all_clients(self.runs[runs[0]]) if runs else ():
                environment = self.runs[runs[0]].environment
                weights = self.models[runs[0]].expand(len(clients), -1)
                examples = stack([environment.signal_examples(client) for client in clients.tolist()])
                losses = self.engine.losses(weights, examples)
                updates, total = torch.zeros(0), losses
                if any(self.runs[i].needs & FROM_UPDATES for i in runs):
                    found = self._local_sgd(np.full(len(clients), runs[0]), clients, weights, round=-1)
                    updates, total = found.updates / found.scale[:, None], found.total
                for i in runs:
                    yield self.memory.keep(np.full(len(clients), i), clients, updates, losses, total)

    def _evaluate(self, records: list[dict[str, Any]]) -> None:
        scores = self.engine.scores(self.recent.mean(dim=1))
        losses = [self._client_losses(i, run) for i, run in enumerate(self.runs)]
        found = to_host(*losses, *[each.mean() for each in losses])
        for i, (run, record) in enumerate(zip(self.runs, records, strict=True)):
            record |= self.evaluation.figures(run, scores[i], found[i])
            record["global_loss"] = float(found[len(self.runs) + i])  # f(w)

    def _client_losses(self, i: int, run: Run) -> Tensor:
        """(N,) the loss of each client at the evaluated model."""
        weights = self.recent[i].mean(dim=0)
        losses = []
        for clients in self._all_clients(run):
            examples = stack([run.environment.signal_examples(client) for client in clients.tolist()])
            losses.append(self.engine.losses(weights.expand(len(clients), -1), examples))
        return torch.cat(losses)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything the next round depends on, as plain arrays."""
        models = {"models": self.models.cpu().numpy(), "recent": self.recent.cpu().numpy()}
        models |= self.server.state()
        return self.memory.state() | models | {"rounds_played": np.array(self.rounds_played)}

    def load_state(self, state: Mapping[str, NDArray[Any]], cohorts: Mapping[tuple[str, int], list[Ints]]) -> None:
        """Restore what `state` returned; `cohorts` are those of each (selector, seed) so far, from the records.

        Raises:
            ValueError: an array is missing, or not of the type and shape that this configuration has; nothing is
                restored then.
        """
        played, (runs, d) = rounds_in(state, self.config.rounds), self.models.shape
        recent = runs, min(self.config.server.average_last, played + 1), d
        models = {"models": (np.float32, (runs, d)), "recent": (np.float32, recent), "rounds_played": (np.int64, ())}
        require_layout(state, self.memory.layout() | models | self.server.layout(state))
        memories = self.server.memories(state)
        chosen = [list(cohorts.get((run.name, run.seed), ())) for run in self.runs]
        if any(len(rounds) != played for rounds in chosen):
            raise ValueError(f"checkpoint: is of {played} rounds, and not every run has so many records")
        for run, rounds, memory in zip(self.runs, chosen, memories, strict=True):
            run.cohorts, run.memory = rounds, memory
        self.memory.load_state(state)
        self.models, self.recent = (to_device(state[name], self.engine.device) for name in ("models", "recent"))
        self.rounds_played = played
