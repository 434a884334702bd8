"""Probes: ask nodes for their identity, loss and gradient before they train."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from equifl.sketch import CountSketch

ACTION = "equifl"
# The model received and the node's context -> loss, gradient as its tensors in order, number of examples.
Answer: TypeAlias = Callable[[ArrayRecord, Context], tuple[float, Iterable[NDArray[Any]], int]]


@dataclass(frozen=True)
class Question:
    """What a node is asked: its identity always, its loss, and its gradient as a sketch if one is given."""

    identity: str | None
    sketch: CountSketch | None

    def record(self) -> ConfigRecord:
        """The question as a message record; a sketch length of 0 means no gradient."""
        length, seed = (self.sketch.length, self.sketch.seed) if self.sketch else (0, 0)
        return ConfigRecord({"identity": self.identity or "", "sketch-length": length, "sketch-seed": seed})


def probe(app: ClientApp) -> Callable[[Answer], Answer]:
    """A decorator that lets a ClientApp answer probes, by a function that returns loss, gradient and examples.

        @probe(app)
        def answer(arrays, context):
            ...
            return loss, [gradient of each array, as numpy], number_of_examples

    The gradient is asked for only with `probe="everyone"`, and leaves the node as a sketch.
    """

    def register(answer: Answer) -> Answer:
        @app.query(ACTION)
        def reply(message: Message, context: Context) -> Message:
            arrays = next(iter(message.content.array_records.values()))
            asked = next(iter(message.content.config_records.values()))
            loss, gradient, examples = answer(arrays, context)
            metrics = MetricRecord({"loss": float(loss), "num-examples": int(examples)})
            if asked["sketch-length"]:
                sketch = CountSketch(length=int(asked["sketch-length"]), seed=int(asked["sketch-seed"]))  # type: ignore[arg-type]
                metrics["sketch"] = sketch(gradient).tolist()
            key = str(asked["identity"])
            me = ConfigRecord({key: context.node_config[key]} if key in context.node_config else {})
            return Message(RecordDict({"metrics": metrics, "identity": me}), reply_to=message)

        return answer

    return register


def questions(node_ids: Iterable[int], arrays: ArrayRecord, question: Question) -> list[Message]:
    """The messages to these nodes; a node without `probe` answers with an error."""
    content = RecordDict({"arrays": arrays, "question": question.record()})
    return [Message(content, node_id, f"query.{ACTION}") for node_id in node_ids]
