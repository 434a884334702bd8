"""FairFedAvg: NVFlare's FedAvg, with fair cohorts, bounded waits and a record of every round.

Longer than 300 lines because it is one controller, whose methods NVFlare calls in turn and which share the state of a
round; what can stand alone is in the files beside it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.workflows.fedavg import FedAvg

from equifl._numerics.checks import integer, known, require
from equifl.aggregators import Aggregator
from equifl.experiment.atomic_write import replacing
from equifl.experiment.selector_tables import make_selector
from equifl.hosts.attendance import Attendance
from equifl.hosts.back_off import BackOff
from equifl.hosts.choice import choose, frugal, name_of
from equifl.hosts.client_signals import ClientSignals, asked_of_clients
from equifl.hosts.evenness import evenness
from equifl.hosts.journal import Journal, State, model_of_state, model_to_state, options_of, unlike
from equifl.hosts.server_rule import ServerRule
from equifl.hosts.updates import KindOfReplies, Updates
from equifl.hosts.usable import MisfitError, SetAsideError, accuracies
from equifl.nvflare.aggregator import CheckedAggregator
from equifl.nvflare.job_json import arguments_of, plain_model, rule_of, table_of
from equifl.nvflare.results import STEPS, Keys, TrainResult, arrays_of, like, metrics_of, read_training, site_of
from equifl.selectors import Selector
from equifl.signals import Ints
from equifl.sketch import CountSketch

log = logging.getLogger(__name__)

_DIFFERENCES = (
    "all results are sent as whole parameters (FULL), but look like differences w_i - w: weights are not so much "
    "shorter than the model; let the script send weights, or flare.FLModel(params_type=ParamsType.DIFF, params=...)"
)
_LONG = 3600  # seconds; a day of silence is no training


class FairFedAvg(FedAvg):  # type: ignore[misc]
    """NVFlare's FedAvg, whose cohorts a selector of equifl chooses, and which waits for nobody for ever.

        job.to_server(FairFedAvg(num_clients=5, num_rounds=50, selector="rota", persistor_id=...))

    Results give the selector its signals: the update w_k - w_k^(i), as a sketch, from the parameters (FULL or DIFF);
    the loss and the number of examples from metrics and meta data. All arguments are plain JSON, as jobs carry them.

    Args:
        selector: the name of a selector, or a table as in a configuration file: {"class": "subtrunc", "lam": 0.9}; a
            selector of your own is {"class": "package.module:Name", ...}. An object, such as Rota(), becomes a table.
        num_clients: sites to train with in each round.
        num_rounds: rounds in all; a resumed run plays those that are left.
        seed: of all random choices.
        loss: the metric of a training result that is the site's loss; only some selectors need it.
        accuracy: the metric that is the site's accuracy, from 0 to 1.
        size: the metric, or entry of the meta data, that is the number of examples.
        timeout: seconds to wait for the results of a round, before going on without those that did not come.
        min_responses: results to wait for (default: all of the cohort); the others have `grace` seconds more.
        grace: see `min_responses`.
        evaluate_every: rounds after which all sites evaluate the new global model, by a "validate" task
            (`flare.is_evaluate()` in their script), but for those that were silent when last asked. 0: nobody is
            asked; accuracies in training results count, which are those of the model before the round, of the cohort
            alone.
        evaluation_timeout: seconds to wait for evaluations.
        folder: where to keep a record of every round, for `equifl report`, and the state to resume from: a path on the
            server, or, if it is relative, within the results of the job. Empty: nowhere.
        resume: go on with the run in `folder`, if there is one, after its last finished round.
        guard: whether to limit what losses, sizes and lengths of updates are worth to a client (`equifl.guard`).
        sketch_length: how long the sketch of an update is.
        aggregator: a ModelAggregator that aggregates instead of the weighted average; it sees usable results alone.
        server_rule: a server rule of equifl that makes the model instead of the weighted average: its name, such as
            "memory", its table, or an object. It holds all results of a round at once.
        model: the global model to begin with, as arrays or nested lists by name; it becomes one of float32. For one
            that is large, or of a framework, give a `persistor_id` instead.
        save_filename: where the global model is saved after every round, in the results of the job, if there is no
            persistor that does so. Empty: nowhere.
        ignore_result_error: whether a site that reports an error is left out, and not the job ended.
        args: those of NVFlare's FedAvg.
        kwargs: those of NVFlare's FedAvg, such as `persistor_id`, `stop_cond` or `exclude_vars`.
    """

    num_rounds: int
    aggregator: Any
    model: Any

    def __init__(
        self,
        *args: Any,
        selector: str | Mapping[str, Any] | Selector = "rota",
        num_clients: int = 3,
        num_rounds: int = 5,
        seed: int = 0,
        loss: str = "train_loss",
        accuracy: str = "accuracy",
        size: str = STEPS,
        timeout: int = _LONG,
        min_responses: int | None = None,
        grace: int = 0,
        evaluate_every: int = 0,
        evaluation_timeout: int = _LONG,
        folder: str = "equifl",
        resume: bool = False,
        guard: bool = True,
        sketch_length: int = 256,
        aggregator: ModelAggregator | None = None,
        server_rule: str | Mapping[str, Any] | Aggregator = "",
        model: Mapping[str, Any] | FLModel | None = None,
        save_filename: str = "global_model.npz",
        ignore_result_error: bool | None = True,
        **kwargs: Any,
    ) -> None:
        known("FairFedAvg", kwargs, arguments_of(type(self)))
        # NVFlare writes a job by reading attributes with the names of arguments: each must stay what was given.
        self.selector = table_of(selector)
        self._chooser = frugal(make_selector("selector", self.selector, "FairFedAvg"))
        num_clients = integer("num_clients", num_clients, least=1)
        self.seed = integer("seed", seed, least=0)
        self.loss, self.accuracy, self.size = loss, accuracy, size
        self.timeout = integer("timeout", timeout, least=1)
        self.evaluation_timeout = integer("evaluation_timeout", evaluation_timeout, least=1)
        self.grace = integer("grace", grace, least=0)
        self.evaluate_every = integer("evaluate_every", evaluate_every, least=0)
        self.min_responses = None if min_responses is None else integer("min_responses", min_responses, least=1)
        enough = min_responses is None or min_responses <= num_clients
        require("min_responses", min_responses, enough, f"at most num_clients = {num_clients}")
        require("folder", folder, isinstance(folder, str), "a path, as text")
        self.folder, self.resume, self.guard = folder, bool(resume), bool(guard)
        self.sketch_length = integer("sketch_length", sketch_length, least=1)
        require("server_rule", server_rule, not (server_rule and aggregator), "'' with an aggregator: one of them")
        self.server_rule: str | dict[str, Any] = ""
        self._rule: ServerRule | None = None
        if server_rule:
            self.server_rule, rule = rule_of(server_rule)
            self._rule = ServerRule(rule, Updates(), log)
        if excluded := kwargs.get("exclude_vars"):
            try:
                re.compile(excluded)
            except (re.error, TypeError) as error:
                raise ValueError(f"exclude_vars: {excluded!r} is not a regular expression ({error})") from None
        super().__init__(
            *args,
            num_clients=num_clients,
            num_rounds=integer("num_rounds", num_rounds, least=1),
            aggregator=aggregator,
            save_filename=save_filename,
            model=plain_model(model) if isinstance(model, Mapping) else model,
            ignore_result_error=ignore_result_error,
            **kwargs,
        )
        self._name = name_of(self._chooser)
        self._keys = Keys(loss, accuracy, size)
        self._needs = asked_of_clients(self._chooser)
        self._wanted = self._needs | ({"losses"} if self._rule is not None and self._rule.needs_loss else set())
        self._sketch = CountSketch(length=self.sketch_length)
        self._known = ClientSignals(self._sketch, guard=self.guard)
        self._ids: dict[
            str, int
        ] = {}  # clients by the names of their sites, in the order in which they were first met
        self._played = 0
        self._better = True  # whether the last model is the best so far
        self._fits = False  # whether any result was usable so far
        self._warned = False  # that there are no accuracies
        self._row: dict[str, Any] = {}
        self._asked: list[str] = []
        self._here: list[str] = []  # the sites that were connected as the round began
        self._attendance, self._back_off = Attendance(), BackOff()
        self._named = 0  # sites whose names are in the records
        self._journal: Journal | None = None

    def run(self) -> None:
        """Play the rounds that are left; errors of ours end the job with their sentence in the log."""
        try:
            self._start()
            if self._played >= self._rounds:
                self.info(f"equifl: all {self._rounds} rounds are played already; nothing is left to do")
                return
            if self._stopped():
                self.info(f"equifl: stopped early after round {self._played - 1} already; nothing is left to do")
                return
            super().run()
        except (ValueError, OSError) as error:
            self.panic(f"equifl: {error}")  # NVFlare would log no more than the type of an error
        finally:
            if self._journal is not None:
                self._journal.close()

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """Choose the sites that train in this round, of those that are connected."""
        self._row = {"round": self._played, "selector": self._name, "seed": self.seed, "cohort": []}
        self._row |= {"local_loss": None, "bytes_down": 0, "bytes_up": 0}
        self._here = here = self._connected()
        k = min(num_clients or self.num_clients, len(here))
        if k < self.num_clients:
            self.warning(f"equifl: round {self._played}: {len(here)} sites are connected, not {self.num_clients}")
        self._asked = []
        if k:
            awake = self._back_off.awake(self._of(here).tolist(), self._played, least=k)
            signals = self._known.at(self._played, np.array(awake, np.int64))
            cohort, why = choose(self._chooser, signals, k, seed=self.seed)
            names = list(self._ids)
            self._asked = [names[client] for client in cohort.tolist()]
            if self._rule is not None:
                self._rule.selected(self._chooser, signals, cohort)
            self._row |= why
        self.info(f"equifl: round {self._played}: {self._name} chooses {', '.join(self._asked) or 'nobody'}")
        return self._asked

    def send_model(
        self,
        task_name: str = "train",
        data: FLModel | None = None,
        targets: list[str] | None = None,
        min_responses: int | None = None,
        timeout: int = 0,
        callback: Any = None,
    ) -> None:
        """Send the model to the cohort, with a limit on the time for which results are waited for."""
        assert data is not None
        assert isinstance(self.aggregator, CheckedAggregator)
        if not targets:  # to NVFlare nobody means everybody
            targets = []
        self.aggregator.begin(self.current_round, data.params, targets)
        accept = self.aggregator.accept_model

        def take(result: FLModel) -> None:
            """NVFlare would skip a result without parameters, and the site would seem silent."""
            (callback if isinstance(result.params, Mapping) and result.params else accept)(result)

        if targets:
            self._row["bytes_down"] = len(targets) * _bytes(data)
            enough = self.min_responses if min_responses is None else min_responses
            self.broadcast_model(
                task_name=task_name,
                data=data,
                targets=targets,
                min_responses=min(enough or len(targets), len(targets)),
                timeout=timeout or self.timeout,
                wait_time_after_min_received=self.grace,
                blocking=False,
                callback=callback and take,
            )

    def update_model(self, model: FLModel, aggr_result: FLModel) -> FLModel:
        """The new global model; learn from the results, evaluate it, and record the round."""
        assert isinstance(self.aggregator, CheckedAggregator)
        results, aside = self.aggregator.news()
        looks = [one.of_the_other_kind for one in results.values() if not one.difference]
        self._kind.decide(looks, len(self._asked))
        if self.aggregator.overflowed:
            self.warning(f"equifl: round {self._played}: the average is not finite; the model is unchanged")
        model = super().update_model(model, aggr_result)
        self._report_missing(results, aside)
        self._remember(results)
        found = self._evaluate(model) if self._evaluates() else self._before(results)
        self._row["set_aside"] = sorted(self._ids[site] for site in aside if site in self._ids)
        if new := {client: site for site, client in self._ids.items() if client >= self._named}:
            self._row["names"], self._named = new, len(self._ids)
        self._row |= self._attendance.count(self._row["cohort"], self._of(self._here), len(self._ids))
        row, fairness = evenness(self._attendance, self._known.times_selected(), np.arange(len(self._ids)), found)
        model.metrics = {**(model.metrics or {}), **fairness}
        self._played += 1
        self._better = super().is_curr_model_better(model)  # beforehand, so that it is in the checkpoint
        self._records.write(self._row | row, lambda: self._state(model))
        return model

    def is_curr_model_better(self, curr_model: FLModel) -> bool:
        """Whether the model is the best so far, by the metric of `stop_cond`: `update_model` has compared it."""
        return self._better

    def _stopped(self) -> bool:
        """Whether a run that is taken up had stopped early."""
        if self._played == 0 or self.stop_condition is None or self.best_target_metric_value is None:
            return False
        return bool(self.should_stop({self.stop_condition[0]: self.best_target_metric_value}))

    def save_model_file(self, model: FLModel, filepath: str) -> None:
        """Save the model where there is no persistor: as plain arrays, if the name ends in .npz."""
        if not filepath.endswith(".npz"):
            super().save_model_file(model, filepath)
            return
        with replacing(Path(filepath)) as file:
            np.savez(file, **arrays_of(model.params))  # type: ignore[arg-type]

    @property
    def _records(self) -> Journal:
        assert self._journal is not None, "the run has not started"
        return self._journal

    def _start(self) -> None:
        """Open the folder, and take up the run in it if there is one."""
        self._rounds = self.num_rounds
        inner = self.aggregator

        def read(result: FLModel, sent: Mapping[str, NDArray[Any]]) -> TrainResult:
            found = read_training(result, sent, self._keys, self._wanted, self._sketch)
            if found.difference or self._kind.known:
                return found
            return replace(found, of_the_other_kind=whole.of_the_other_kind(sent, found.arrays))

        whole = Updates()
        self._kind = KindOfReplies(whole, log, _DIFFERENCES)
        self.aggregator = CheckedAggregator(
            read,
            inner,
            exclude_vars=self.exclude_vars,
            weights=self.aggregation_weights,
            rule=self._rule,
            ids=self._ids,
        )
        path = Path(self.engine.get_workspace().get_result_root(self.fl_ctx.get_job_id()), self.folder)
        try:
            self._journal = Journal(
                path if self.folder else None,
                self._config(inner),
                host="nvflare",
                log=log,
                resume=self.resume,
                patience=60.0 if self.resume else 0.0,
            )
        except OSError as error:
            raise ValueError(f"folder: {path} cannot be used ({error}); give one that the server may write") from error
        self.model = self._first_model()
        if self._journal.state is not None:
            self._take_up(self._journal.state, path)
            self._journal.state, self._journal.past = None, []
            self.start_round += self._played
            self.num_rounds = max(self._rounds - self._played, 0)
        elif self.resume and self.folder and not Path(self.folder).is_absolute():
            where = f"there is no run in {path}, which is within the results of this job"
            self.warning(f"equifl: resume=True, but {where}; give an absolute path as folder, which outlives the job")

    def _first_model(self) -> FLModel:
        model = self.model
        if model is None:
            model = self.load_model()
        elif not isinstance(model, FLModel):
            model = FLModel(ParamsType.FULL, {key: np.array(value, np.float32) for key, value in model.items()})
        if model is None or not model.params:
            raise ValueError("there is no global model to begin with; give FairFedAvg a `model` or a `persistor_id`")
        return model

    def _take_up(self, state: State, path: Path) -> None:
        """Go on with a run: its model, in the form of the one that this job began with, and what was known."""
        model, first = model_of_state(state), arrays_of(self.model.params)
        if found := unlike(model, first):
            raise ValueError(f"{path}: its global model is another one ({found}); start in another folder")
        identities = state["identities"].tolist()
        self._ids |= {identity.removeprefix("name:"): client for client, identity in enumerate(identities)}
        if self._rule is not None:
            self._rule.load(state)
        self._known.load(state, len(self._ids), self._records.past)
        self._back_off.load(state)
        self._attendance.load(state, len(self._ids), len(self._records.past))
        self.model.params = {key: like(self.model.params[key], array) for key, array in model.items()}
        if self.stop_condition and state.get("best.metric", np.array("")).item() == self.stop_condition[0]:
            best, waited = state["best"].tolist()
            self.best_target_metric_value = None if np.isnan(best) else best
            self.num_fl_rounds_without_improvement = int(waited)
        self._played, self._named = int(state["rounds_played"]), len(self._ids)
        self._fits = self._kind.known = self._played > 0
        self.info(f"equifl: goes on after round {self._played - 1} of the run in {path}")

    def _connected(self) -> list[str]:
        """The sites of the job that NVFlare does not deem disconnected; new ones get the next numbers."""
        names = [client.name for client in self.engine.get_clients()]
        here = sorted((name for name in names if not self.get_client_disconnect_time(name)), key=_natural)
        for name in here:
            self._ids.setdefault(name, len(self._ids))
        self._known.grow(len(self._ids))
        return here

    def _of(self, sites: Iterable[str]) -> Ints:
        return np.array([self._ids[site] for site in sites], np.int64)

    def _report_missing(self, results: Mapping[str, TrainResult], aside: Mapping[str, SetAsideError]) -> None:
        """Name the sites without a usable result, and why; ValueError if that is how all of them are written."""
        for site, error in aside.items():
            self.warning(f"equifl: round {self._played}: a result of {site} is set aside: {error}")
        silent = [site for site in self._asked if site not in results and site not in aside]
        if silent:
            self.warning(f"equifl: round {self._played}: no result of {', '.join(silent)} (silent, late or failed)")
        answered = results.keys() | aside.keys()
        cut = self.min_responses is not None and len(answered) >= self.min_responses  # the others were not waited for
        mine = [self._of(sites).tolist() for sites in (answered & self._ids.keys(), () if cut else silent)]
        self._back_off.count(self._played, answered=mine[0], silent=mine[1])
        if not results:
            self.warning(f"equifl: round {self._played}: no result is usable; the model is unchanged")
        self._fits = self._fits or bool(results)
        reasons, misfits = (
            {str(error) for error in aside.values()},
            (isinstance(e, MisfitError) for e in aside.values()),
        )
        all_answers = len(aside) == len(self._asked) - len(silent)
        if not self._fits and all_answers and len(aside) > 1 == len(reasons) and all(misfits):
            needs = " and ".join(sorted(self._wanted))
            advice = f". The server needs {needs}; let the script send it, or name its metric (loss=)" if needs else ""
            raise ValueError(f"no result can be used: {reasons.pop()}{advice}")

    def _remember(self, results: Mapping[str, TrainResult]) -> None:
        if not self._asked:
            return
        self._row["cohort"] = self._of(self._asked).tolist()
        self._known.selected(self._of(self._asked), self._played)
        for name, field in (("losses", "loss"), ("updates", "update"), ("sizes", "size")):
            reported = {site: value for site, one in results.items() if (value := getattr(one, field)) is not None}
            if reported and (name == "sizes" or name in self._needs):
                self._known.learn(name, self._of(reported), np.array(list(reported.values())))
        losses = [one.loss for one in results.values() if one.loss is not None]
        self._row["local_loss"] = sum(loss / len(losses) for loss in losses) if losses else None
        self._row["bytes_up"] = sum(one.bytes for one in results.values())

    def _evaluates(self) -> bool:
        return self.evaluate_every > 0 and (self._played + 1) % self.evaluate_every == 0

    def _evaluate(self, model: FLModel) -> dict[int, tuple[float, float]]:
        """Accuracy and size of each site, on the new global model, but of who was silent when last asked."""
        connected = self._connected()
        self._of(connected)  # it gives those that are new an id
        here = [site for site in connected if self._ids[site] not in self._back_off]
        if not here:
            return {}
        results = self.broadcast_model(
            task_name=AppConstants.TASK_VALIDATION,
            data=FLModel(
                ParamsType.FULL, model.params, current_round=self.current_round, total_rounds=model.total_rounds
            ),
            targets=here,
            min_responses=len(here),
            timeout=self.evaluation_timeout,
        )
        reported = {site_of(one): metrics_of(one) for one in results}
        self._back_off.count(self._played, answered=(), silent=self._of(set(here) - reported.keys()).tolist())
        return self._read_accuracies(reported, len(here))

    def _before(self, results: Mapping[str, TrainResult]) -> dict[int, tuple[float, float]]:
        """Accuracies that came with training results, where there are any."""
        if self.evaluate_every:
            return {}
        there = {site: one.reported for site, one in results.items() if self.accuracy in one.reported}
        if results and not there and not self._warned:
            text = "no training result has `%s`, so the report will have no figures: set evaluate_every=1, or send it"
            self.warning(f"equifl: round {self._played}: {text % self.accuracy}, or name its metric (accuracy=)")
            self._warned = True
        return self._read_accuracies(there, len(there))

    def _read_accuracies(
        self, reported: Mapping[str, Mapping[str, Any]], asked: int
    ) -> dict[int, tuple[float, float]]:
        clients = {self._ids[site]: metrics for site, metrics in reported.items()}
        found, why = accuracies(clients, self.accuracy, self.size)
        if asked > len(reported):
            why["it did not come"] = asked - len(reported)
        for reason, count in why.items():
            self.warning(f"equifl: round {self._played}: {count} evaluations do not count for fairness: {reason}")
        return found

    def _config(self, inner: Any) -> dict[str, Any]:
        """The configuration for the run folder, with a simulation's keys."""
        mine: dict[str, Any] = {"aggregator": type(inner).__name__ if inner is not None else None}
        mine |= {} if self._rule is None else {"server_rule": self._rule.table}
        mine |= {"exclude_vars": self.exclude_vars, "aggregation_weights": self.aggregation_weights or None}
        mine |= {"evaluate_every": self.evaluate_every, "guard": self.guard}
        mine |= {"sketch": asdict(self._sketch), "metrics": asdict(self._keys)}
        return {
            "rounds": None,
            "clients": None,
            "per_round": self.num_clients,
            "seeds": [self.seed],
            "data": {"name": "NVFlare"},
            "nvflare": mine,
            "selectors": {self._name: options_of(make_selector("selector", self.selector))},
        }

    def _state(self, model: FLModel) -> dict[str, Any]:
        best = np.nan if self.best_target_metric_value is None else float(self.best_target_metric_value)
        return {
            "best": np.array([best, self.num_fl_rounds_without_improvement]),
            "best.metric": np.array(self.stop_condition[0] if self.stop_condition else ""),
            **self._known.state(),
            **self._attendance.state(),
            **self._back_off.state(),
            **({} if self._rule is None else self._rule.state()),
            **model_to_state(arrays_of(model.params)),
            "identities": np.array([f"name:{name}" for name in self._ids], np.str_),
            "rounds_played": np.array(self._played),
        }


def _bytes(model: FLModel) -> int:
    return sum(array.nbytes for array in arrays_of(model.params).values())


def _natural(name: str) -> tuple[Any, ...]:
    """Sorts site-2 before site-10."""
    return tuple(int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name)))
