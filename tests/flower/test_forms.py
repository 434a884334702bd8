from itertools import count
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from equifl import Uniform
from equifl.flower.forms import Form, common_form
from tests.flower.pretend_grid import fair, grid_of, play

pytestmark = pytest.mark.usefixtures("inside_a_run")

USUAL = Form((), ("arrays", "metrics"), "ff", (("loss", None),))
MORE = USUAL._replace(metrics=(("loss", None), ("more", None)))
ODD = USUAL._replace(odd=("2 metric records instead of 1",))
COUNTER = USUAL._replace(kinds="fi")


@pytest.mark.parametrize(
    ("forms", "agreed", "common"),
    [
        ([USUAL, MORE, USUAL], None, USUAL),
        ([MORE, MORE, USUAL], USUAL, MORE),  # metrics may change from round to round
        ([MORE, USUAL], USUAL, USUAL),
        ([USUAL], None, USUAL),
        ([ODD], None, None),  # one reply never decides
        ([ODD, USUAL], None, USUAL),
        ([ODD, ODD], None, ODD),  # that is how the client is written
        ([ODD, ODD, ODD], USUAL, None),  # which is known already
        ([USUAL, ODD], ODD, ODD),
        ([COUNTER, COUNTER], None, COUNTER),
        ([COUNTER, COUNTER, USUAL], USUAL, USUAL),
        ([], USUAL, None),
    ],
)
def test_most_replies_decide(forms: list[Form], agreed: Form | None, common: Form | None) -> None:
    assert common_form(forms, agreed) == common


class Takes(FedAvg):
    """A strategy of the user: it takes anything that FedAvg lets through, and leaves the model alone."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0, train_metrics_aggr_fn=lambda records, key: MetricRecord())
        self.taken = 0

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        usable, _ = self._check_and_log_replies(replies, is_train=True)
        self.taken += len(usable)
        return None, MetricRecord()


def test_objects_as_bytes_may_have_any_length() -> None:
    grid, strategy = grid_of(), Takes()
    fairly = fair(Uniform(), strategy, k=8)
    messages = list(fairly.configure_train(1, ArrayRecord([np.zeros(0, np.uint8)]), ConfigRecord(), grid))
    replies = [
        Message(
            RecordDict(
                {"arrays": ArrayRecord([np.zeros(length, np.uint8)]), "metrics": MetricRecord({"num-examples": 1})}
            ),
            reply_to=message,
        )
        for length, message in enumerate(messages)
    ]
    fairly.aggregate_train(1, replies)
    assert strategy.taken == 8


def test_lists_of_different_lengths_are_for_a_function_of_the_user() -> None:
    lengths = count(1)

    def history(question: Message, reply: Message) -> list[Message]:
        record = next(iter(reply.content.metric_records.values()))
        record["history"] = [0.5] * next(lengths)
        return [reply]

    grid, strategy = grid_of(), Takes()
    grid.faults = dict.fromkeys(grid.partitions, history)
    play(fair(Uniform(), strategy, k=8), grid, 1)
    assert strategy.taken == 8
