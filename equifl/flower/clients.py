"""What the server knows of its clients: their identities and their signals.

Longer than 300 lines because each reply changes identity, signals, silence and forms together; what can stand alone is
in the files beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from equifl._numerics.checks import require
from equifl.flower.forms import Agreed, Form, Layout, kinds_of
from equifl.flower.replies import (
    TrainNews,
    decoded,
    first_of_each,
    form_of_evaluation,
    metrics_of,
    read_answer,
    read_training,
    seems_usable,
    sorted_out,
)
from equifl.flower.roster import Roster
from equifl.flower.wrapped import Reads, nodes_of
from equifl.hosts.attendance import Attendance, Counted
from equifl.hosts.back_off import BackOff
from equifl.hosts.client_signals import ClientSignals
from equifl.hosts.evenness import evenness
from equifl.hosts.server_rule import ServerRule
from equifl.hosts.updates import KindOfReplies, Updates
from equifl.hosts.usable import MisfitError, SetAsideError, accuracies
from equifl.signals import Ints, Signals
from equifl.sketch import CountSketch

log = logging.getLogger("flwr")


@dataclass(frozen=True)
class Keys:
    """Names of the metrics."""

    loss: str
    accuracy: str
    size: str


class Clients:
    """A roster, and signals that grow with it. `guard`: limit what clients say of themselves (`equifl.guard`)."""

    def __init__(
        self,
        roster: Roster,
        keys: Keys,
        needs: frozenset[str],
        sketch: CountSketch,
        *,
        reads: Reads,
        updates: Updates | None = None,
        rule: ServerRule | None = None,
        guard: bool = True,
        participation: Counted = "all",
    ) -> None:
        self._roster, self._keys, self._needs, self._sketch = roster, keys, needs, sketch
        self._reads, self._updates, self._rule = reads, updates or Updates(), rule
        self._kind = KindOfReplies(self._updates, log)
        self._known = ClientSignals(sketch, guard=guard)
        require("participation", participation, participation in get_args(Counted), "'all' or 'present'")
        self._attendance = Attendance(participation)
        self._silence = self.back_off, self.evaluating = BackOff(), BackOff("evaluating")
        self.present: Collection[int] = ()  # the nodes that were online as the round began
        self._fits = False  # whether any reply was usable so far
        self._agreed = Agreed()
        self.aside: set[int] = set()  # nodes of which a reply was set aside, until somebody clears it

    def __len__(self) -> int:
        return len(self._roster)

    @property
    def free(self) -> int:
        """How many of the ids belong to nobody."""
        return self._roster.identities.count("")

    def meet(self, grid: Grid) -> list[int]:
        """The nodes that are online, in the order in which they were first seen."""
        online = set(grid.get_node_ids())
        self._roster.online(online)
        if self._roster.unmet():  # else no request: Flower copies the information on all nodes
            self._roster.meet(node for node in nodes_of(grid) if node.node_id in online)
        self._forget_silence(self._roster.moved())
        return self._roster.in_order(online)

    def of(self, node_ids: Iterable[int]) -> Ints:
        """The clients of these nodes."""
        clients = self._roster.clients(node_ids)
        self._known.grow(len(self._roster))
        return clients

    def unknown(self, node_ids: Iterable[int]) -> list[int]:
        """Nodes whose identity is unknown, or whose client's loss is unknown and needed."""
        known = [node for node in node_ids if self._roster.knows(node)]
        done = dict(zip(known, self._done(known), strict=True))
        return [node for node in node_ids if not done.get(node, False)]

    def signals(self, round: int | None, node_ids: Iterable[int]) -> Signals:
        """`Signals` at the start of a round (None: after all rounds), with these nodes available."""
        return self._known.at(round, self.of(node_ids))

    def first_of_each(self, replies: Iterable[Message], sent: Collection[Message]) -> list[Message]:
        """The first reply of each node to these messages; late and repeated ones are ignored, with a warning.

        In the order in which the nodes were first seen: results must not depend on arrival times.
        """
        first, ignored = first_of_each(replies, sent)
        for node in ignored:
            log.warning("equifl: a reply of node %d came late or twice: ignored", node)
        self.aside |= {message.metadata.dst_node_id for message in sent} & set(ignored) - first.keys()
        return [first[node] for node in self._roster.in_order(first)]

    def seems_usable(self, reply: Message, sent: ArrayRecord, layout: Layout, *, signals: bool) -> bool:
        """Whether a training reply does not show by itself that it will be set aside."""
        loss = self._keys.loss if "losses" in self._read(signals) else None
        return seems_usable(reply, sent, layout, loss, self._reads)

    def _read(self, signals: bool) -> frozenset[str]:
        """What is read of training replies, for the selector and the rule."""
        of_rule = {"losses"} if self._rule is not None and self._rule.needs_loss else set[str]()
        return (self._needs if signals else frozenset[str]()) | of_rule

    def read_training(
        self,
        round: int,
        replies: Iterable[Message],
        sent: ArrayRecord,
        asked: Mapping[int, Layout],
        *,
        enough: int | None = None,
        signals: bool,
    ) -> dict[int, TrainNews]:
        """The contents of the usable replies, by node; the others are set aside, with a warning each.

        `enough` replies were waited for (None: all). Without `signals` they are only checked, since the selector's
        signals then come from probes. If no reply was ever usable, and the reason is how the client is written, which
        several nodes show, it raises ValueError.
        """
        wanted, enough = self._read(signals), min(enough or len(asked), len(asked))
        model = {key: decoded(array) for key, array in sent.items()}

        def read(reply: Message) -> TrainNews:
            self._recognise(reply)
            found = read_training(
                reply,
                model,
                asked[reply.metadata.src_node_id],
                loss=self._keys.loss,
                size=self._keys.size,
                needs=wanted,
                reads=self._reads,
                updates=self._updates,
                sketch=self._sketch,
            )
            if self._rule is not None:
                self._rule.require_whole(model, found.arrays)
            return found

        news, aside = sorted_out(replies, read)
        forms = {node: one.form for node, one in news.items() if one.form is not None}
        kinds = kinds_of(next(iter(asked.values()), ()))
        news = {node: news[node] for node in self._alike("train", forms, aside, enough, kinds)}
        self.set_aside(f"round {round + 1}: a reply of", aside)
        self._fits = self._fits or bool(news)
        self._kind.check(model, [one.arrays for one in news.values()] if 2 * len(news) > enough else [])
        reasons = {str(error) for error in aside.values()}
        if not self._fits and len(aside) > 1 == len(reasons) and isinstance(next(iter(aside.values())), MisfitError):
            raise ValueError(
                f"equifl: no reply can be used: {reasons.pop()}. The selector needs "
                f"{' and '.join(sorted(wanted)) or 'nothing'}; let the client send what it and the strategy need, "
                "name its metric (loss='...'), or give a selector of your own `needs`"
            )
        return news

    def remember_training(
        self, round: int, asked: Iterable[int], news: Mapping[int, TrainNews], *, signals: bool
    ) -> None:
        """Store the selection of these nodes, and the contents of their replies."""
        self._known.selected(self.of(asked), round)
        self._remember(news if signals else {node: TrainNews(None, None, one.size, 0) for node, one in news.items()})

    def read_answers(self, replies: Iterable[Message], *, fresh: bool) -> int:
        """Store the answers to a probe, unless `fresh` only those of unknown clients; returns their bytes."""
        answers = {reply.metadata.src_node_id: reply for reply in replies}
        identities, unreadable = sorted_out(answers.values(), self._identity)
        # Recognised in the order of the identities they report, which does not depend on node ids; 2 before 10.
        order = sorted(self._roster.in_order(identities), key=lambda node: (len(identities[node]), identities[node]))
        sketch = self._sketch if fresh and "updates" in self._needs else None

        def read(reply: Message) -> TrainNews:
            self._recognise(reply)
            return read_answer(reply, sketch)

        news, aside = sorted_out((answers[node] for node in order), read)
        self.set_aside("the answer to a probe of", unreadable | aside)
        total = sum(answer.bytes for answer in news.values())
        if not fresh:
            news = {node: news[node] for node, done in zip(news, self._done(list(news)), strict=True) if not done}
        self._remember(news)
        return total

    def usable_evaluations(self, round: int, replies: Iterable[Message], asked: int = 0) -> list[Message]:
        """The replies, of so many nodes asked, that the strategy can average; the others are set aside, and named."""
        evaluated = {reply.metadata.src_node_id: reply for reply in replies}

        def read(reply: Message) -> Form:
            self._recognise(reply)
            return form_of_evaluation(reply, self._reads.weight)

        forms, aside = sorted_out(evaluated.values(), read)
        usable = self._alike("evaluate", forms, aside, asked)
        self.set_aside(f"round {round + 1}: an evaluation of", aside)
        return [evaluated[node] for node in usable]

    def read_evaluations(
        self, round: int, reported: Mapping[int, Mapping[str, Any]]
    ) -> dict[int, tuple[float, float]]:
        """Accuracy and number of examples by client, from metrics by node; one warning a reason for those without."""
        found, why = accuracies(reported, self._keys.accuracy, self._keys.size)
        for reason, count in why.items():
            log.warning("equifl: round %d: %d evaluations do not count for fairness: %s", round + 1, count, reason)
        return dict(zip(self.of(found).tolist(), found.values(), strict=True))

    def set_aside(self, what: str, aside: Mapping[int, SetAsideError]) -> None:
        """Name the nodes whose replies are not usable, and why."""
        for node, error in aside.items():
            log.warning("equifl: %s %s is set aside: %s", what, self._roster.named(node), error)
        self.aside |= aside.keys()

    def end_round(
        self, cohort: Iterable[int], found: Mapping[int, tuple[float, float]]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """Count a round; the entries of its row on presence, participation and fairness, and metrics for Flower."""
        here = self.of(self.present)
        row: dict[str, Any] = dict(self._attendance.count(cohort, here, len(self)))
        taken = np.flatnonzero([bool(identity) for identity in self._roster.identities])
        even, metrics = evenness(self._attendance, self._known.times_selected(), taken, found)
        names = self._roster.news()
        return row | even | ({"names": names} if names else {}), metrics

    def state(self) -> dict[str, NDArray[Any]]:
        """The state as plain arrays, without what the records hold."""
        known = self._known.state() | self._attendance.state() | self._roster.state()
        return known | self.back_off.state() | self.evaluating.state() | self._agreed.state()

    def load(self, state: Mapping[str, NDArray[Any]], cohorts: Sequence[Sequence[int]]) -> None:
        """Restore what `state` returned after rounds with these cohorts; ValueError if that cannot be."""
        roster = Roster(self._roster.metric)
        roster.load(state)
        self._roster, known = roster, len(roster)
        self._known.load(state, known, cohorts)
        self._attendance.load(state, known, len(cohorts))
        for each in (*self._silence, self._agreed):
            each.load(state)
        self._fits = self._kind.known = bool((self._known.times_selected() > 0).any())

    def _alike(
        self, kind: str, forms: Mapping[int, Form], aside: dict[int, SetAsideError], wanted: int, sent: str = ""
    ) -> list[int]:
        """The nodes whose replies a strategy can average; it sets the others aside."""
        if not self._reads.averages:
            return list(forms)
        if kind in self._reads.own:  # which may average lists of different lengths
            forms = {
                node: form._replace(metrics=tuple((name, None) for name, _ in form.metrics))
                for node, form in forms.items()
            }
        by_name = wanted if kind in self._reads.by_name else None
        alike, others = self._agreed.sort_out(kind, forms, wanted=by_name, sent=sent)
        aside |= others
        return alike

    def _identity(self, reply: Message) -> str:
        """The identity that an answer to a probe reports; empty if none."""
        values = map(self._roster.value, reply.content.config_records.values())
        return next(filter(None, values), "")

    def _recognise(self, reply: Message) -> None:
        """Read the identity of a node from a reply's metrics or configuration."""
        node, free = reply.metadata.src_node_id, list[int]()
        for record in (metrics_of(reply), *reply.content.config_records.values()):
            free += self._roster.recognise(node, record)
        free += self._roster.replied(node)
        if free:
            self._known.forget(free)
            self._attendance.forget(free)
            if self._rule is not None:
                self._rule.forget(free)
        self._forget_silence({*free, *self._roster.moved()})

    def _forget_silence(self, clients: Collection[int]) -> None:
        for each in self._silence:
            each.forget(clients)

    def _done(self, nodes: list[int]) -> list[bool]:
        """For each node, whether its client's loss is known or not needed."""
        if "losses" not in self._needs or not nodes:
            return [True] * len(nodes)
        who = self.of(nodes)  # first: it makes room for them
        return self.signals(None, []).knows_loss[who].tolist()

    def _remember(self, news: Mapping[int, TrainNews]) -> None:
        for name, field in (("losses", "loss"), ("updates", "update"), ("sizes", "size")):
            reported = {node: getattr(one, field) for node, one in news.items() if getattr(one, field) is not None}
            if reported and (name == "sizes" or name in self._needs):
                self._known.learn(name, self.of(reported), np.array(list(reported.values())))
