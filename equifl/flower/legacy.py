"""FairSelection for strategies of the older Flower API: `flwr.server.strategy.Strategy` and `ServerAppComponents`.

Longer than 300 lines because it is one strategy, whose methods Flower calls in turn and which share the state of a
round; what can stand alone is in the files beside it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar, ndarrays_to_parameters
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAvg, Strategy
from numpy.typing import NDArray

from equifl._numerics.checks import integer, require
from equifl.flower.averaging import Kind, kinds_changed, kinds_read
from equifl.flower.clients import Clients, Keys
from equifl.flower.forms import Layout, layout_of
from equifl.flower.older_api import (
    PartOfClients,
    arrays_of_parameters,
    is_number,
    message_of,
    node_of,
    require_arrays,
    require_open,
)
from equifl.flower.replies import arrays_of, bytes_of, decoded, is_finite
from equifl.flower.roster import Roster
from equifl.flower.strategy_state import StrategyState
from equifl.flower.wrapped import Reads, chain
from equifl.hosts.attendance import Counted
from equifl.hosts.choice import choose, frugal, name_of
from equifl.hosts.journal import Journal, model_of_state, model_to_state, options_of, unlike
from equifl.hosts.updates import RUNNING_STATISTICS
from equifl.hosts.usable import SetAsideError
from equifl.selectors import Selector
from equifl.selectors.base import needs
from equifl.sketch import CountSketch

log = logging.getLogger("flwr")

SIZE = "num-examples"  # what clients of this API always report


class FairSelection(Strategy):
    """A strategy of the older Flower API that selects the clients that fit for another one; all else is the other's.

        strategy = FairSelection(FedAvg(), Rota(), k=10, folder="runs/mine")
        ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=50))

    Clients (`NumPyClient`) stay as they are. Selectors, guard, records and resume are those of
    `equifl.flower.FairSelection`; this API has no probes.

    Args:
        strategy: configures and aggregates; it must take all clients that it sees (`fraction_fit=1.0`).
        selector: any of equifl's, or one of your own.
        k: clients to fit with in each round.
        seed: of all random choices.
        identity: a metric that `fit` returns, such as "partition-id", that identifies a client whose node has no
            registered key, when the node restarts.
        loss: the metric that `fit` returns that is the client's loss; only some selectors need it.
        accuracy: the metric that `evaluate` returns that is the client's accuracy, from 0 to 1.
        sketch: how long a sketch is, and its seed.
        patience: seconds to wait for clients before a round goes on without them; and, to resume, for a run that was
            just stopped to leave its folder.
        wait_for: clients to wait for before a round (default k).
        folder: where to keep a record of every round, for `equifl report`, and the state to resume from.
        resume: go on with the run in `folder`, if there is one: `rounds_played` says how many rounds are behind, and
            the initial parameters are those of its last round.
        checkpoint_every: rounds from one saved state to the next; those after the last one are played again.
        participation: as in `equifl.flower.FairSelection`.
        guard: as in `equifl.flower.FairSelection`.
        replies: what results hold: "weights", or "delta", the differences w_k^(i) - w_k, which the strategy then adds.
        leave_out: as in `equifl.flower.FairSelection`; arrays have no names here but their numbers, from 0.
    """

    def __init__(
        self,
        strategy: Strategy,
        selector: Selector,
        *,
        k: int,
        seed: int = 0,
        identity: str | None = None,
        loss: str = "train_loss",
        accuracy: str = "accuracy",
        sketch: CountSketch | None = None,
        patience: float = 60.0,
        wait_for: int | None = None,
        folder: Path | str | None = None,
        resume: bool = False,
        checkpoint_every: int = 1,
        participation: Counted = "all",
        guard: bool = True,
        replies: Kind = "weights",
        leave_out: str | None = RUNNING_STATISTICS,
    ) -> None:
        choosing = callable(getattr(selector, "select", None)) and not isinstance(selector, type)
        require("selector", selector, choosing, "an object with a `select`, such as Rota()")
        require("patience", patience, patience >= 0, "0 or more seconds")
        self.strategy, self.selector = strategy, frugal(selector)
        self.k = integer("k", k, least=1)
        self.seed = integer("seed", seed, least=0)
        self.wait_for = self.k if wait_for is None else integer("wait_for", wait_for, least=1)
        require_open(strategy, self.k)
        self.identity, self.patience, self.rounds_played = identity, patience, 0
        self.parameters: Parameters | None = None
        self._keys = Keys(loss, accuracy, SIZE)
        self._needs = needs(selector)
        self._sketch = sketch or CountSketch()
        averages = any(isinstance(part, FedAvg) for part in chain(strategy))
        reads = Reads(averages, SIZE if averages else None, None, frozenset())
        self._clients = Clients(
            Roster(identity),
            self._keys,
            self._needs,
            self._sketch,
            reads=reads,
            updates=kinds_read(replies, leave_out, strategy, "aggregate_fit"),
            guard=guard,
            participation=participation,
        )
        self._asked: dict[int, Layout] = {}  # nodes, in this round, and the arrays they were sent
        self._row: dict[str, Any] = {}
        self._name = name_of(selector)
        self._kept = StrategyState(strategy)
        settings: dict[str, Any] = {"strategy": self._kept.settings, "api": "flwr.server"}
        settings |= {"identity": identity, "guard": guard, "participation": participation}
        settings |= kinds_changed(replies, leave_out)
        config = {
            "rounds": None,
            "clients": None,
            "per_round": self.k,
            "seeds": [self.seed],
            "data": {"name": "Flower"},
            "flower": settings | {"sketch": asdict(self._sketch), "metrics": asdict(self._keys)},
            "selectors": {self._name: options_of(selector)},
        }
        self._journal = Journal(
            folder,
            config,
            host="flwr",
            log=log,
            resume=resume,
            patience=patience,
            checkpoint_every=checkpoint_every,
        )
        if self._journal.state is not None:
            try:
                self._clients.load(self._journal.state, self._journal.past)
                self._require_alike(model_of_state(self._journal.state))
                self._kept.load(self._journal.state)
            except ValueError as error:
                self._journal.close()
                raise ValueError(f"{folder}: its checkpoint cannot be used ({error}); start in another one") from None
            self.parameters = ndarrays_to_parameters(list(model_of_state(self._journal.state).values()))
            self.rounds_played = int(self._journal.state["rounds_played"])
            self._journal.state, self._journal.past = None, []

    def _require_alike(self, model: dict[str, NDArray[Any]]) -> None:
        """Refuse a strategy whose own initial parameters have another form."""
        for part in chain(self.strategy):
            given = getattr(part, "initial_parameters", None)
            if given is not None:
                here = {name: decoded(array) for name, array in arrays_of_parameters(given).items()}
                if why := unlike(model, here):
                    raise ValueError(f"{type(part).__name__}.initial_parameters: {why}")

    def close(self) -> None:
        """Save the state, and let others write the folder, which they may after the end of the process, too."""
        if not self._row:  # no round is going on
            self._journal.save(self._state)
        self._journal.close()

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Those of the run that is resumed, or the strategy's."""
        return self.parameters or self.strategy.initialize_parameters(client_manager)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Select clients; returns the strategy's instructions to them."""
        require_arrays("parameters", parameters)
        self.parameters = parameters
        self._row = {"round": self.rounds_played, "selector": self._name, "seed": self.seed, "cohort": []}
        self._row |= {"local_loss": None, "bytes_down": 0, "bytes_up": 0}
        self._clients.aside.clear()
        online = self._online(client_manager)
        self._clients.present = list(online)
        chosen = self._choose(list(online))
        instructions = self.strategy.configure_fit(
            self._number, parameters, PartOfClients({node: online[node] for node in chosen})
        )
        place = {node: i for i, node in enumerate(chosen)}
        instructions.sort(key=lambda pair: place.get(node_of(pair[0]), len(place)))
        layouts = {id(fit.parameters): layout_of(arrays_of(message_of(0, fit.parameters))) for _, fit in instructions}
        self._asked = {node_of(proxy): layouts[id(fit.parameters)] for proxy, fit in instructions}
        self._row["bytes_down"] = len(instructions) * bytes_of(arrays_of_parameters(parameters))
        return instructions

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Read the results, and let the strategy aggregate the usable ones."""
        assert self.parameters is not None, "configure_fit comes first"
        by_node = {node_of(proxy): (proxy, result) for proxy, result in results if node_of(proxy) in self._asked}
        by_node = {node: by_node[node] for node in self._asked if node in by_node}  # in the order of selection
        reported: dict[int, Any] = {node: one.metrics.get(self._keys.loss) for node, (_, one) in by_node.items()}
        losses: dict[int, float] = {node: loss for node, loss in reported.items() if is_number(loss)}
        replies = [self._reply(node, result) for node, (_, result) in by_node.items()]
        news = self._clients.read_training(
            self.rounds_played, replies, arrays_of_parameters(self.parameters), self._asked, signals=True
        )
        made: Parameters | None = None
        metrics: dict[str, Scalar] = {}
        if news:
            usable = [by_node[node] for node in sorted(news, key=lambda node: not news[node].same_types)]
            made, metrics = self.strategy.aggregate_fit(self._number, usable, failures)
        else:
            log.warning("equifl: round %d: no client sent a usable result; the model is unchanged", self._number)
        if made is not None and not is_finite(arrays_of_parameters(made)):
            log.warning("equifl: round %d: the average is not finite; the model is unchanged", self._number)
            made = None
        self._clients.remember_training(self.rounds_played, self._asked, news, signals=True)
        known = [losses[node] for node in news if node in losses]
        self._row["cohort"] = self._clients.of(self._asked).tolist()
        self._row["local_loss"] = sum(loss / len(known) for loss in known) if known else None
        self._row["bytes_up"] = sum(one.bytes for one in news.values())
        self.parameters = made or self.parameters
        return made, metrics

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """The strategy's instructions to all online clients; without any, this ends the round."""
        part = PartOfClients(self._meet(client_manager))
        instructions = self.strategy.configure_evaluate(self._number, parameters, part)
        if not instructions:
            self._finish({})
        return instructions

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """The strategy's loss and metrics, and fairness over the clients that evaluated; ends the round."""
        by_node = {node_of(proxy): (proxy, result) for proxy, result in results}
        endless = {node for node, (_, result) in by_node.items() if not math.isfinite(result.loss)}
        self._clients.set_aside(
            f"round {self._number}: an evaluation of",
            {node: SetAsideError("its loss is not finite") for node in endless},
        )
        order = [node for node in by_node if node not in endless]
        replies = [self._evaluation(node, by_node[node][1]) for node in order]
        usable = self._clients.usable_evaluations(self.rounds_played, replies)
        loss, metrics = None, dict[str, Scalar]()
        if usable:
            mine = [by_node[reply.metadata.src_node_id] for reply in usable]
            loss, metrics = self.strategy.aggregate_evaluate(self._number, mine, failures)
        results_of = {node: by_node[node][1] for node in (reply.metadata.src_node_id for reply in usable)}
        reported = {node: {**result.metrics, SIZE: result.num_examples} for node, result in results_of.items()}
        found = self._clients.read_evaluations(self.rounds_played, reported)
        fairness: Mapping[str, Scalar] = self._finish(found)
        return loss, {**metrics, **fairness}

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """The strategy's own evaluation, on the server; 0 stays 0, and a resumed run continues its count."""
        return self.strategy.evaluate(server_round and self._number, parameters)

    def _finish(self, found: Mapping[int, tuple[float, float]]) -> dict[str, float]:
        self._row["set_aside"] = sorted(self._clients.of(self._clients.aside).tolist())
        row, fairness = self._clients.end_round(self._row["cohort"], found)
        self.rounds_played += 1
        self._journal.write(self._row | row, self._state)
        self._row = {}
        return fairness

    def _state(self) -> dict[str, Any]:
        arrays = {} if self.parameters is None else arrays_of_parameters(self.parameters)
        model = model_to_state({name: decoded(array) for name, array in arrays.items()})
        known = self._clients.state() | self._kept.state()
        return {**known, **model, "rounds_played": np.array(self.rounds_played)}

    @property
    def _number(self) -> int:
        """Number of the current round as Flower counts, from 1; a resumed run continues its count."""
        return self.rounds_played + 1

    def _online(self, client_manager: ClientManager) -> dict[int, ClientProxy]:
        """The online clients, once there are `wait_for` of them or `patience` seconds have passed."""
        until = time.monotonic() + self.patience
        while client_manager.num_available() < self.wait_for and time.monotonic() < until:
            time.sleep(0.2)
        online = self._meet(client_manager)
        if len(online) < self.wait_for:
            text = "equifl: round %d: waited %g s, and %d clients are online instead of %d (wait_for)"
            log.warning(text, self._number, self.patience, len(online), self.wait_for)
            self.wait_for = max(len(online), 1)  # who never came is waited for once
        return online

    def _meet(self, client_manager: ClientManager) -> dict[int, ClientProxy]:
        proxies = {node_of(proxy): proxy for proxy in client_manager.all().values()}
        grid: Any = next((proxy.grid for proxy in proxies.values() if hasattr(proxy, "grid")), None)
        known = {node.node_id: node for node in grid.get_nodes()} if hasattr(grid, "get_nodes") else {}
        nodes = [known.get(node, SimpleNamespace(node_id=node)) for node in proxies]
        seen: Any = SimpleNamespace(get_node_ids=lambda: list(proxies), get_nodes=lambda: nodes)
        return {node: proxies[node] for node in self._clients.meet(seen)}

    def _choose(self, online: list[int]) -> list[int]:
        k = min(self.k, len(online))
        if not k:
            return []
        cohort, why = choose(self.selector, self._clients.signals(self.rounds_played, online), k, seed=self.seed)
        self._row |= why
        nodes = dict(zip(self._clients.of(online).tolist(), online, strict=True))
        return [nodes[client] for client in cohort.tolist()]

    def _reply(self, node: int, result: FitRes) -> Any:
        """A result as the newer API's reply; of its metrics those that are needed or wrong: others may differ."""
        metrics: dict[str, Any] = {SIZE: result.num_examples if is_number(result.num_examples) else 0}
        value: Any = result.metrics.get(self._keys.loss)
        if is_number(value) and ("losses" in self._needs or not math.isfinite(value)):
            metrics[self._keys.loss] = value
        return message_of(node, result.parameters, metrics, self._identity_in(result.metrics))

    def _evaluation(self, node: int, result: EvaluateRes) -> Any:
        metrics: dict[str, Any] = {SIZE: result.num_examples if is_number(result.num_examples) else 0}
        return message_of(node, None, metrics, self._identity_in(result.metrics))

    def _identity_in(self, metrics: Mapping[str, Scalar]) -> dict[str, Any]:
        return {key: metrics[key] for key in (self.identity,) if key is not None and key in metrics}
