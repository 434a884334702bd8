"""FairSelection: any Flower strategy, with fair cohorts.

Longer than 300 lines because it is one strategy, whose methods Flower calls in turn and which share the state of a
round; what can stand alone is in the files beside it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from equifl._numerics.checks import integer, require
from equifl.aggregators import Aggregator
from equifl.experiment.run_folder import CHECKPOINT
from equifl.flower.averaging import Kind, fill_in, kinds_changed, kinds_read, next_model, require_mean
from equifl.flower.clients import Clients, Keys
from equifl.flower.first_replies import Ends, FirstReplies
from equifl.flower.forms import Layout, layout_of
from equifl.flower.probe import Question, questions
from equifl.flower.replies import arrays_of, bytes_of, decoded, is_finite, metrics_of
from equifl.flower.roster import Roster
from equifl.flower.strategy_state import StrategyState
from equifl.flower.wrapped import PartOfGrid, Reads, TooFewNodes, accounts, forget_round, least_nodes, require_open
from equifl.hosts.attendance import Counted
from equifl.hosts.choice import choose, frugal, name_of
from equifl.hosts.client_signals import asked_of_clients
from equifl.hosts.journal import Journal, model_of_state, model_to_state, options_of, unlike
from equifl.hosts.server_rule import ServerRule
from equifl.hosts.updates import RUNNING_STATISTICS
from equifl.selectors import Selector
from equifl.sketch import CountSketch

log = logging.getLogger("flwr")

Probing = Literal["never", "newcomers", "everyone"]


class FairSelection(Strategy):
    """A Flower strategy that selects the training nodes for another strategy; all else is the other's own.

    The wrapped strategy sees only the selected nodes. Their replies give the selector its signals: the update
    w_k - w_k^(i), as a sketch, so that the server holds N x length numbers and not N x d; the loss and the number of
    examples from their metrics. A selector that needs updates alone, as Rota does, needs no change in the client.

        strategy = FairSelection(FedAvg(), Rota(), k=10)
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=50)

    Args:
        strategy: configures and aggregates; it must take all nodes that it sees (`fraction_train=1.0`).
        selector: any of equifl's, or one of your own. Where its `memory_limit` was left at 1 GiB, it is 128 MiB here.
        k: nodes to train with in each round.
        seed: of all random choices.
        identity: a metric, such as "partition-id", that identifies a client whose node has no registered key, when the
            node restarts; of one that has, it is the name in log and report. Without it keys alone identify clients.
        loss: the metric of a training reply that is the client's loss; only some selectors need it.
        accuracy: the metric of an evaluation reply that is the client's accuracy, from 0 to 1.
        size: the metric that is the number of examples.
        sketch: how long a sketch is, and its seed.
        probe: "newcomers": ask new nodes for their identity and loss before their first selection; "everyone": ask all
            nodes for their loss and gradient before every round. Both need `equifl.flower.probe` in the client.
        patience: seconds to wait for nodes, and for answers to a probe, before going on without them; and, to resume,
            for a run that was just stopped to leave its folder.
        wait_for: nodes to wait for before a round (default k).
        folder: where to keep a record of every round, for `equifl report`, and the state to resume from.
        resume: go on with the run in `folder`, if there is one, after its last finished round; `rounds_played` and
            `arrays` then say how far it is.
        checkpoint_every: rounds from one saved state to the next; those after the last one are played again.
        participation: whose participation the figures count: "all" clients ever met, or those "present" in the round.
        guard: whether to limit what losses, sizes and lengths of updates are worth to a client (`equifl.guard`).
        replies: what replies hold: "weights", or "delta", the differences w_k^(i) - w_k. The first ones are checked.
        leave_out: a regular expression of the names of arrays that are no part of an update, beside integers; default:
            the running statistics of batch normalisation. None: integers alone.
        aggregator: a server rule of equifl, such as `Memory()`, that takes the place of the mean of the replies, for a
            strategy that averages them. Its memory is in the checkpoint.
        extra: nodes that are asked to train beyond k: the first k replies end the round.
        deadline: seconds after which a round of training, or of evaluation, goes on without the replies that did not
            come. Default: the `timeout` of `start`, an hour.
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
        accuracy: str = "eval_acc",
        size: str = "num-examples",
        sketch: CountSketch | None = None,
        probe: Probing = "never",
        patience: float = 60.0,
        wait_for: int | None = None,
        folder: Path | str | None = None,
        resume: bool = False,
        checkpoint_every: int = 1,
        participation: Counted = "all",
        guard: bool = True,
        replies: Kind = "weights",
        leave_out: str | None = RUNNING_STATISTICS,
        aggregator: Aggregator | None = None,
        extra: int = 0,
        deadline: float | None = None,
    ) -> None:
        choosing = callable(getattr(selector, "select", None)) and not isinstance(selector, type)
        require("selector", selector, choosing, "an object with a `select`, such as Rota()")
        self.strategy, self.selector = strategy, frugal(selector)
        self._options = options_of(selector)
        self.k = integer("k", k, least=1)
        self.seed = integer("seed", seed, least=0)
        self.wait_for = self.k if wait_for is None else integer("wait_for", wait_for, least=1)
        require("probe", probe, probe in get_args(Probing), " or ".join(map(repr, get_args(Probing))))
        require("patience", patience, patience >= 0, "0 or more seconds")
        self.extra = integer("extra", extra, least=0)
        require_open(strategy, self.k, self.extra)
        updates = kinds_read(replies, leave_out, strategy if aggregator is None else None)
        self._rule = None if aggregator is None else ServerRule(aggregator, updates, log)
        if self._rule is not None:
            require_mean(strategy)
        require("deadline", deadline, deadline is None or deadline > 0, "above 0 seconds, or None")
        self._ends = Ends(self.k if self.extra else None, deadline)
        self._rounds_end: FirstReplies | None = None
        self._of_replies = kinds_changed(replies, leave_out) | ({"extra": self.extra} if self.extra else {})
        self.probe, self.patience = probe, patience
        self.keys = Keys(loss, accuracy, size)
        self.sketch = sketch or CountSketch()
        self.identity = identity
        self.rounds_played = 0
        self.arrays: ArrayRecord | None = None
        self.clients = Clients(
            Roster(identity),
            self.keys,
            asked_of_clients(selector),
            self.sketch,
            reads=Reads.of(strategy),
            updates=updates,
            rule=self._rule,
            guard=guard,
            participation=participation,
        )
        self._name = name_of(selector)
        self._asked: dict[int, Layout] = {}  # nodes, in this round, and the arrays they were sent
        self._chosen: list[int] = []  # nodes, in this round, in the order of selection
        self._sent: list[Message] = []  # the messages whose replies come next
        self._row: dict[str, Any] = {}
        self._probed: set[int] = set()
        self._settled = False
        self._enough = self.wait_for
        once = "1, because a strategy with a privacy accountant must count rounds that are played again"
        require("checkpoint_every", checkpoint_every, checkpoint_every == 1 or not accounts(strategy), once)
        self._kept = StrategyState(strategy)
        self._journal = Journal(
            folder,
            self._config(guard, participation),
            host="flwr",
            log=log,
            resume=resume,
            patience=patience,
            checkpoint_every=checkpoint_every,
        )
        if self._journal.state is not None:
            try:
                self.clients.load(self._journal.state, self._journal.past)
                self._kept.load(self._journal.state)
                if self._rule is not None:
                    self._rule.load(self._journal.state)
                model = model_of_state(self._journal.state)
                self.arrays = ArrayRecord({name: Array(array) for name, array in model.items()})
            except ValueError as error:
                self._journal.close()
                raise ValueError(f"{folder}: its checkpoint cannot be used ({error}); start in another one") from None
            self.rounds_played = int(self._journal.state["rounds_played"])
            self._journal.state, self._journal.past = None, []

    @classmethod
    def resume(cls, folder: Path | str, strategy: Strategy, selector: Selector, **options: Any) -> FairSelection:
        """Go on after the last finished round of the run in `folder`, with the settings that it was started with.

        `arrays` is then the global model at that point, and `rounds_played` says how many rounds are behind:

            strategy = FairSelection.resume("runs/mine", FedAvg(), Rota(), k=10)
            strategy.start(grid=grid, initial_arrays=strategy.arrays, num_rounds=50 - strategy.rounds_played)

        `strategy` is a new one with the same settings; it gets back what it had kept, such as FedAdam's moments.
        """
        if not (Path(folder) / CHECKPOINT).exists():
            raise ValueError(f"{folder}: holds no finished round; start with FairSelection(..., folder=...)")
        return cls(strategy, selector, folder=folder, resume=True, **options)

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *args: Any, **options: Any) -> Result:
        """As Flower's own, whose arguments it takes; when it is over, others may write the folder."""
        self._rounds_end = FirstReplies(grid, self._ends, self._counts)
        try:
            self._require_alike(initial_arrays)
            if accounts(self.strategy) and not self.rounds_played:
                self.arrays = initial_arrays
                self._journal.begin(self._state)
            result = super().start(self._rounds_end, initial_arrays, *args, **options)
            self._journal.save(self._state)
            return result
        finally:
            self._journal.close()

    def _require_alike(self, initial_arrays: ArrayRecord) -> None:
        """Refuse to go on with a model of another form; warn where it is another one."""
        if not self.rounds_played or self.arrays is None or initial_arrays is self.arrays:
            return
        there, here = ({name: array.numpy() for name, array in one.items()} for one in (self.arrays, initial_arrays))
        if why := unlike(there, here):
            raise ValueError(f"initial_arrays: {why}; go on with this strategy's `arrays`, or start in another folder")
        if not all(np.array_equal(there[name], here[name]) for name in there):
            text = "equifl: round %d begins with other arrays than round %d ended with; `arrays` has those"
            log.warning(text, self._number, self.rounds_played)

    def summary(self) -> None:
        """Log the selector, then the wrapped strategy."""
        log.info("\t├──> equifl: %s chooses %d nodes a round", self.selector, self.k)
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Select nodes; returns the strategy's messages to them."""
        self.arrays = arrays
        self._row = {"round": self.rounds_played, "selector": self._name, "seed": self.seed, "cohort": []}
        self._row |= {"local_loss": None, "bytes_down": 0, "bytes_up": 0}
        self.clients.aside.clear()
        self.clients.present = online = self._online(grid)
        if self.probe != "never" and online:
            self._ask(grid, online, arrays)
        chosen = self._chosen = self._choose(self._awake(online))
        forget_round(self.strategy, self._number)
        messages = self._write(
            "train",
            grid,
            lambda: chosen,
            lambda part: self.strategy.configure_train(self._number, arrays, config, part),
        )
        place = {node: i for i, node in enumerate(chosen)}  # strategies shuffle; keep the order of selection
        messages.sort(key=lambda message: place.get(message.metadata.dst_node_id, len(place)))
        contents = {id(message.content): message for message in messages}  # mostly one for all
        layouts = {content: layout_of(arrays_of(message)) for content, message in contents.items()}
        self._asked = {message.metadata.dst_node_id: layouts[id(message.content)] for message in messages}
        self._sent = messages
        self._row["bytes_down"] += len(self._asked) * bytes_of(arrays)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Read the replies, and let the strategy aggregate the usable ones."""
        first = {reply.metadata.src_node_id: reply for reply in self.clients.first_of_each(replies, self._sent)}
        replied = {node: first[node] for node in self._asked if node in first}  # in the order of selection
        self._sent = []
        arrays = metrics = None
        if self._asked:
            assert self.arrays is not None, "configure_train comes first"
            signals = self.probe != "everyone"
            news = self.clients.read_training(
                self.rounds_played, replied.values(), self.arrays, self._asked, enough=self.k, signals=signals
            )
            if news:
                # FedAvg gives the model the types of its first reply: one reply in float16 must not do so.
                usable = [replied[node] for node in sorted(news, key=lambda node: not news[node].same_types)]
                failed = [reply for reply in replied.values() if reply.has_error()]
                if self._rule is not None:
                    fill_in(usable, next_model(self._rule, self.clients, self.arrays, news, self._chosen))
                arrays, metrics = self.strategy.aggregate_train(self._number, [*usable, *failed])
                if arrays is None:
                    text = "equifl: round %d: %s made no model of %d of %d replies; the model is unchanged"
                    log.warning(text, self._number, type(self.strategy).__name__, len(usable), len(replied))
            if accounts(self.strategy):  # before the model is sent to anybody: a round that is cut off counts, too
                self._journal.amend(self._kept.state())
            if arrays is not None and not is_finite(arrays):
                log.warning("equifl: round %d: the average is not finite; the model is unchanged", self._number)
                arrays = None
            # Last: if the strategy fails, the round does not count.
            self._count_silence(first)
            self.clients.remember_training(self.rounds_played, self._asked, news, signals=signals)
            losses = [one.loss for one in news.values() if one.loss is not None]
            self._row["cohort"] = self.clients.of(self._asked).tolist()
            self._row["local_loss"] = sum(loss / len(losses) for loss in losses) if losses else None  # never inf
            self._row["bytes_up"] += sum(one.bytes for one in news.values())
            if not news:
                asked = len(self._asked)
                log.warning(
                    "equifl: round %d: none of %d nodes sent a usable reply; the model is unchanged",
                    self._number,
                    asked,
                )
        self.arrays = arrays or self.arrays
        return arrays, self._without_identity(metrics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's messages to all online nodes, or to as many of them as it samples; not to those that rest."""
        self._sent = self._write(
            "evaluate",
            grid,
            lambda: self._awake(self.clients.meet(grid), to_evaluate=True),
            lambda part: self.strategy.configure_evaluate(self._number, arrays, config, part),
        )
        return self._sent

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The strategy's metrics, and fairness over the clients that evaluated; ends the round."""
        first = self.clients.first_of_each(replies, self._sent)
        self._count_mute({reply.metadata.src_node_id for reply in first})
        usable = self.clients.usable_evaluations(self.rounds_played, first, len(self._sent))
        self._sent = []
        failed = [reply for reply in first if reply.has_error()]
        metrics = self.strategy.aggregate_evaluate(self._number, [*usable, *failed]) if usable else None
        reported = {reply.metadata.src_node_id: metrics_of(reply) for reply in usable}
        found = self.clients.read_evaluations(self.rounds_played, reported)
        self._row["set_aside"] = sorted(self.clients.of(self.clients.aside).tolist())
        row, fairness = self.clients.end_round(self._row["cohort"], found)
        self._row |= row
        self.rounds_played += 1
        self._journal.write(self._row, self._state)
        return MetricRecord({**(self._without_identity(metrics) or {}), **fairness})

    def _without_identity(self, metrics: MetricRecord | None) -> MetricRecord | None:
        """The metrics without the identity, whose mean is meaningless."""
        if metrics is not None and self.identity is not None:
            metrics.pop(self.identity, None)
        return metrics

    @property
    def _number(self) -> int:
        """Number of the current round as Flower counts, from 1; a resumed run continues its count."""
        return self.rounds_played + 1

    def _online(self, grid: Grid) -> list[int]:
        """The online nodes, once there are `wait_for` of them or `patience` seconds have passed."""
        until = time.monotonic() + self.patience
        found = len(list(grid.get_node_ids()))
        while (found < self._enough or not self._settled) and time.monotonic() < until:
            before = found
            time.sleep(0.2)
            found = len(list(grid.get_node_ids()))
            # At the start nodes register one by one: wait until their number is stable.
            self._settled = self._settled or found == before >= self._enough
        self._settled = True
        if found < self._enough:
            text = "equifl: round %d: waited %g s, and %d nodes are online instead of %d (wait_for)"
            log.warning(text, self._number, self.patience, found, self._enough)
        # Wait once for nodes that never came, but again for nodes that were online and left.
        self._enough = min(self.wait_for, max(found, 1))
        return self.clients.meet(grid)

    def _awake(self, online: list[int], *, to_evaluate: bool = False) -> list[int]:
        """The nodes that may be asked: who was silent for long rests, as long as there are enough others.

        Who is mute in training does not evaluate either, but who is mute in evaluations trains.
        """
        nodes = dict(zip(self.clients.of(online).tolist(), online, strict=True))
        least = max(least_nodes(self.strategy, "evaluate"), 1) if to_evaluate else self.k + self.extra
        awake = self.clients.back_off.awake(nodes, self.rounds_played, least=least)
        if to_evaluate:
            awake = self.clients.evaluating.awake(awake, self.rounds_played, least=least)
        return [nodes[client] for client in awake]

    def _count_mute(self, first: Collection[int]) -> None:
        """Count who did not evaluate; who replied late in training as well, and was not waited for, is mute there."""
        silent = {message.metadata.dst_node_id for message in self._sent}.difference(first)
        evaluating, answered = self.clients.evaluating, self.clients.of(first).tolist()
        evaluating.count(self.rounds_played, answered=answered, silent=self.clients.of(silent).tolist())
        mute = [client for client in self._row.get("late", ()) if client in evaluating]
        self.clients.back_off.count(self.rounds_played, answered=(), silent=mute)

    def _count_silence(self, first: Collection[int]) -> None:
        """Count who did not answer; not those whom nobody waited for, which the round's row then names."""
        silent = [node for node in self._asked if node not in first]
        cut = self._rounds_end is not None and self._rounds_end.cut
        if self.extra:
            self._row["late"] = self.clients.of(silent).tolist() if cut else []
        who = [self.clients.of(nodes).tolist() for nodes in (first, () if cut else silent)]
        self.clients.back_off.count(self.rounds_played, answered=who[0], silent=who[1])

    def _counts(self, reply: Message) -> bool:
        """Whether a training reply is one of the first k: not if it shows that it will be set aside."""
        layout = self._asked.get(reply.metadata.src_node_id, ())
        sent, signals = self.arrays or ArrayRecord(), self.probe != "everyone"
        return self.clients.seems_usable(reply, sent, layout, signals=signals)

    def _ask(self, grid: Grid, online: list[int], arrays: ArrayRecord) -> None:
        everyone = self.probe == "everyone"
        asked = online if everyone else sorted(set(self.clients.unknown(online)) - self._probed)
        self._probed |= set(asked)  # a node that cannot answer is asked once
        with_gradient = everyone and "updates" in asked_of_clients(self.selector)
        messages = questions(asked, arrays, Question(self.identity, self.sketch if with_gradient else None))
        answers = grid.send_and_receive(messages, timeout=self.patience) if messages else []
        up = self.clients.read_answers(self.clients.first_of_each(answers, messages), fresh=everyone)
        self._row["bytes_down"] += len(asked) * bytes_of(arrays)
        self._row["bytes_up"] += up

    def _choose(self, online: list[int]) -> list[int]:
        k = min(self.k + self.extra, len(online))
        if not k:
            return []
        signals = self.clients.signals(self.rounds_played, online)
        cohort, why = choose(self.selector, signals, k, seed=self.seed)
        self._row |= why
        if self._rule is not None:
            self._rule.selected(self.selector, signals, cohort)
        node_of = dict(zip(self.clients.of(online).tolist(), online, strict=True))
        return [node_of[client] for client in cohort.tolist()]

    def _write(
        self,
        what: str,
        grid: Grid,
        nodes: Callable[[], list[int]],
        configure: Callable[[Grid], Iterable[Message]],
    ) -> list[Message]:
        """The messages of the wrapped strategy, or none if it waits for more nodes than there are."""
        shown = nodes()
        wanted = max(least_nodes(self.strategy, what), 1)
        try:
            if what == "evaluate" or len(shown) >= wanted:
                return list(configure(PartOfGrid(grid, nodes, self.patience)))
        except TooFewNodes:
            shown = nodes()
        name = type(self.strategy).__name__
        log.warning(
            "equifl: round %d: no %s, because %s needs %d nodes and %d are online",
            self._number,
            what,
            name,
            wanted,
            len(shown),
        )
        return []

    def _config(self, guard: bool, participation: Counted) -> dict[str, Any]:
        """The configuration for the run folder, with a simulation's keys."""
        wrapped: dict[str, Any] = {
            "strategy": self._kept.settings,
            "identity": self.identity,
        }
        wrapped |= {"probe": self.probe, "guard": guard, "participation": participation}
        wrapped |= {"sketch": asdict(self.sketch), "metrics": asdict(self.keys)}
        wrapped |= self._of_replies
        wrapped |= {} if self._rule is None else {"aggregator": self._rule.table}
        return {
            "rounds": None,
            "clients": None,
            "per_round": self.k,
            "seeds": [self.seed],
            "data": {"name": "Flower"},
            "flower": wrapped,
            "selectors": {self._name: self._options},
        }

    def _state(self) -> dict[str, Any]:
        model = {name: decoded(array) for name, array in (self.arrays or {}).items()}
        known = self.clients.state() | self._kept.state() | ({} if self._rule is None else self._rule.state())
        return {**known, **model_to_state(model), "rounds_played": np.array(self.rounds_played)}
