"""The aggregator around the user's: it reads every result, and lets only the usable ones into the average."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator

from equifl.hosts.server_rule import Reply, ServerRule
from equifl.hosts.usable import SetAsideError, all_finite
from equifl.nvflare.results import TrainResult, arrays_of, like, site_of

log = logging.getLogger(__name__)

Read = Callable[[FLModel, Mapping[str, NDArray[Any]]], TrainResult]


class CheckedAggregator(ModelAggregator):  # type: ignore[misc]
    """Averages the results that are usable, weighted as NVFlare does, or hands them to an aggregator of the user's.

    After a round, `results` has what the usable ones reported, and `aside` why the others were set aside, by site.

    Args:
        read: makes a `TrainResult` of a result and the model that was sent; raises SetAsideError.
        inner: aggregates instead of the average.
        exclude_vars: parameters that keep their values, as a regular expression (NVFlare's `exclude_vars`).
        weights: a factor by site, beside its number of steps (NVFlare's `aggregation_weights`).
        rule: a server rule of equifl that makes the model instead of the average.
        ids: the client of each site, for the rule; all clients there are.
    """

    def __init__(
        self,
        read: Read,
        inner: ModelAggregator | None = None,
        *,
        exclude_vars: str | None = None,
        weights: Mapping[str, float] | None = None,
        rule: ServerRule | None = None,
        ids: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self._read, self._inner, self._factors = read, inner, dict(weights or {})
        self._excluded = re.compile(exclude_vars) if exclude_vars else None
        self._rule, self._ids = rule, {} if ids is None else ids
        self._lock = Lock()  # results come in by several threads
        self._params: Mapping[str, Any] = {}
        self._sent: Mapping[str, NDArray[Any]] = {}
        self._asked: Collection[str] = ()
        self._round: int | None = None
        self.reset_stats()

    def begin(self, round: int, params: Mapping[str, Any], asked: Collection[str]) -> None:
        """Set what is sent to whom; results of other rounds and of other sites are set aside."""
        with self._lock:
            self._round, self._params, self._sent, self._asked = round, params, arrays_of(params), set(asked)

    def reset_stats(self) -> None:
        """Forget the round before, and take no result until the next begins."""
        with self._lock:
            self.results: dict[str, TrainResult] = {}
            self.aside: dict[str, SetAsideError] = {}
            self.overflowed = False  # whether the average was not finite, and the model stays
            self._asked = ()
            self._difference: bool | None = None
            self._failure: ValueError | None = None  # the first of the user's aggregator
            self._failed: set[str] = set()  # the sites whose results it could not accept
            self._replies: list[Reply] = []
            self._mean: dict[str, NDArray[Any]] = {}
            self._total: dict[str, float] = {}
            if self._inner is not None:
                self._inner.reset_stats()

    def accept_model(self, model: FLModel) -> None:
        """Take a result if it is usable. Here alone a result becomes a value of ours: only that result is lost."""
        with self._lock:
            site = site_of(model)
            try:
                given = self._take(site, model)
            except SetAsideError as error:
                self.aside.setdefault(site, error)
            except Exception as error:  # whatever a site may send
                self.aside.setdefault(site, SetAsideError(f"it cannot be read: {type(error).__name__}: {error}"))
            else:
                if given is not None:
                    self._hand_over(site, given)

    def aggregate_model(self) -> FLModel:
        """The next global model, whole; the one that was sent where no result is usable."""
        with self._lock:
            most = 2 * len(self._failed) > len(self._asked)
            self._asked = ()  # later results do not count
            if self._failure is not None and most and not self.results:  # it is how the aggregator is written
                raise self._failure
            if not self.results:
                return self._whole({}, False, None)
            if self._rule is not None:
                replies = sorted(self._replies, key=lambda reply: reply.client)  # not as they arrived
                made, self._replies = self._rule.step(self._sent, replies, len(self._ids)), []
                kept = {key: array for key, array in made.items() if not self._excludes(key)}
                return self._whole(kept, False, self._mean_metrics())
            if self._inner is None:
                return self._whole(self._mean, bool(self._difference), self._mean_metrics())
            mine = self._ask("aggregate_model")
            if not isinstance(mine, FLModel):
                what = f"aggregator: {type(self._inner).__name__}.aggregate_model returned {type(mine).__name__}"
                raise ValueError(f"{what}, expected an FLModel")
            return self._whole(mine.params, mine.params_type == ParamsType.DIFF, mine.metrics)

    def news(self) -> tuple[dict[str, TrainResult], dict[str, SetAsideError]]:
        """The `results` of this round and `aside`, as they are now: others may still come in."""
        with self._lock:
            return dict(self.results), dict(self.aside)

    def _hand_over(self, site: str, given: FLModel) -> None:
        """Give a result to the user's aggregator; it is set aside if that raises, since the site may be the cause."""
        try:
            self._ask("accept_model", given)
        except ValueError as error:  # NVFlare would hide it
            del self.results[site]
            self.aside[site] = SetAsideError(str(error))
            self._failed.add(site)
            self._failure = self._failure or error

    def _ask(self, method: str, *arguments: Any) -> Any:
        """Call the user's aggregator; ValueError for whatever it raises."""
        try:
            return getattr(self._inner, method)(*arguments)
        except Exception as error:
            where = f"{type(self._inner).__name__}.{method}"
            log.exception("equifl: the aggregator's %s failed", where)
            raise ValueError(f"aggregator: {where} raised {type(error).__name__}: {error}") from error

    def _take(self, site: str, model: FLModel) -> FLModel | None:
        """Keep what a result reports; returns it as the user's aggregator gets it, if there is one."""
        if site in self.results or site in self._failed:
            raise SetAsideError("it came twice: the first counts")
        if site not in self._asked or model.current_round not in (None, self._round):
            raise SetAsideError("it came late, or from a site that was not asked")
        result = self._read(model, self._sent)
        if self._rule is not None:
            self._keep(site, result)
            return None
        difference = result.difference if self._difference is None else self._difference
        arrays = result.arrays
        if result.difference != difference:  # all that are averaged must be of one kind
            sign = 1 if result.difference else -1
            arrays = {key: array + sign * self._sent[key] for key, array in arrays.items()}
        given = None
        if self._inner is None:
            self._add(arrays, self._weight(site, result))
        else:
            params = {key: like(self._params[key], array) for key, array in arrays.items()}
            kind = ParamsType.DIFF if difference else ParamsType.FULL
            given = FLModel(kind, params, metrics=model.metrics, current_round=self._round, meta=model.meta)
        self._difference = difference
        self.results[site] = replace(result, arrays={})  # they are in the average
        return given

    def _keep(self, site: str, result: TrainResult) -> None:
        """Keep a result as whole weights, of which the rule makes the model; arrays that are missing did not move."""
        assert self._rule is not None
        moved = {key: self._sent[key] + array if result.difference else array for key, array in result.arrays.items()}
        arrays = {**self._sent, **moved}
        self._rule.require_whole(self._sent, arrays)
        loss = math.nan if result.loss is None else result.loss
        self._replies.append(Reply(self._ids[site], arrays, self._weight(site, result), loss))
        self.results[site] = replace(result, arrays={})

    def _excludes(self, key: str) -> bool:
        return self._excluded is not None and bool(self._excluded.search(key))

    def _weight(self, site: str, result: TrainResult) -> float:
        return result.weight * float(self._factors.get(site, 1.0))

    def _add(self, arrays: Mapping[str, NDArray[Any]], weight: float) -> None:
        """Move the mean towards these arrays; unlike a sum it cannot overflow."""
        for key, array in arrays.items():
            if weight <= 0 or self._excludes(key):
                continue
            total = self._total[key] = self._total.get(key, 0.0) + weight
            if key not in self._mean:
                kind = np.result_type(array, np.float32 if array.dtype.kind == "f" else np.float64)
                self._mean[key] = array.astype(kind)
            else:
                self._mean[key] += (array - self._mean[key]) * (weight / total)

    def _whole(self, params: Mapping[str, Any], difference: bool, metrics: dict[str, Any] | None) -> FLModel:
        """The model that was sent, with these parameters in their places, if all are finite."""
        whole = dict(self._params)
        for key, array in arrays_of(params).items():
            if key in self._sent:
                whole[key] = like(self._params[key], self._sent[key] + array if difference else array)
        if not all_finite(arrays_of(whole).values()):
            self.overflowed, whole = True, dict(self._params)
        return FLModel(ParamsType.FULL, whole, metrics=metrics or None, current_round=self._round)

    def _mean_metrics(self) -> dict[str, float]:
        """The weighted mean of each metric over the sites that reported a finite number."""
        means: dict[str, float] = {}
        totals: dict[str, float] = {}
        for site, result in self.results.items():
            weight = self._weight(site, result)
            for key, value in result.metrics.items():
                if weight > 0 and isinstance(value, int | float) and math.isfinite(value):
                    totals[key] = totals.get(key, 0.0) + weight
                    means[key] = means.get(key, 0.0) + (value - means.get(key, 0.0)) * (weight / totals[key])
        return means
