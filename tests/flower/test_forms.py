from itertools import count
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from equifl import Uniform
from equifl.flower.forms import Agreed, Form, common_form
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
        ([USUAL], MORE, USUAL),  # where nobody reads them by name
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
    assert common_form(forms, agreed, wanted=None, sent="ff") == common


@pytest.mark.parametrize(
    ("forms", "agreed", "sent", "common"),
    [
        ([USUAL], COUNTER, "ff", USUAL),  # what was sent is fit
        ([USUAL], COUNTER, "if", None),
        ([COUNTER, USUAL], COUNTER, "ff", USUAL),  # and decides between as many
        ([COUNTER, COUNTER, USUAL], COUNTER, "ff", COUNTER),  # a mean turns counters into real numbers
        ([COUNTER, USUAL], None, "fi", COUNTER),
    ],
)
def test_the_kinds_of_the_arrays_that_were_sent_are_fit(
    forms: list[Form], agreed: Form | None, sent: str, common: Form | None
) -> None:
    assert common_form(forms, agreed, wanted=None, sent=sent) == common


@pytest.mark.parametrize(
    ("forms", "asked", "common"),
    [
        ([USUAL], 1, None),  # one reply never decides
        ([USUAL], 9, None),
        ([USUAL, USUAL], 3, None),  # nor do two thirds
        ([USUAL] * 3, 4, USUAL),
        ([USUAL, USUAL, MORE], 3, MORE),
        ([USUAL] * 3 + [MORE], 4, USUAL),
    ],
)
def test_metrics_that_were_agreed_on_are_there_unless_nearly_all_lack_them(
    forms: list[Form], asked: int, common: Form | None
) -> None:
    assert common_form(forms, MORE, wanted=asked, sent="ff") == common


def sorting(agreed: Agreed, *forms: Form, asked: int | None = None, first: int = 1) -> list[int]:
    """The nodes 1, 2, ... whose replies of these forms can be averaged."""
    by_node = dict(enumerate(forms, first))
    alike, aside = agreed.sort_out("train", by_node, wanted=len(forms) if asked is None else asked, sent="ff")
    assert {*alike, *aside} == by_node.keys()
    return alike


def test_what_some_send_beside_is_not_asked_of_all() -> None:
    agreed = Agreed()
    assert sorting(agreed, USUAL, USUAL) == [1, 2]
    assert sorting(agreed, MORE, MORE) == [1, 2]
    assert sorting(agreed, USUAL) == [1]


def test_what_nearly_all_lack_is_not_asked_for_any_more() -> None:
    agreed = Agreed()
    assert sorting(agreed, MORE, MORE) == [1, 2]
    assert sorting(agreed, USUAL, asked=1) == []
    assert sorting(agreed, USUAL, USUAL, asked=3) == []
    assert sorting(agreed, USUAL, USUAL) == [1, 2]
    assert sorting(agreed, USUAL, asked=1) == [1]


def test_two_nodes_whose_replies_came_alone_agree() -> None:
    agreed = Agreed()
    assert [sorting(agreed, form, first=node) for node, form in ((1, MORE), (1, MORE), (1, USUAL))] == [[1]] * 3
    assert [sorting(agreed, MORE, first=node) for node in (2, 3)] == [[2], [3]]
    assert sorting(agreed, USUAL) == []


@pytest.mark.parametrize("form", [USUAL, MORE, COUNTER, ODD._replace(odd=("other arrays", (("a", "b", (3,), "f"),)))])
def test_what_was_agreed_on_comes_back(form: Form) -> None:
    agreed, again = Agreed(), Agreed()
    sorting(agreed, form, form)
    again.load(agreed.state())
    again.load({})  # of an earlier version
    assert again.state() == agreed.state()
    assert sorting(again, form) == [1]
    for damage in ("[", "[1]", '{"train": [1, 2]}'):
        with pytest.raises(ValueError, match="checkpoint: `forms` cannot be read"):
            again.load({"forms": np.array(damage)})


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


def test_three_rounds_in_a_row_without_a_metric_do_without_it() -> None:
    """Of as many nodes as one round needs: more than two thirds of four."""
    agreed = Agreed()
    assert sorting(agreed, MORE, MORE) == [1, 2]
    assert [sorting(agreed, USUAL, USUAL, asked=4) for _ in range(5)] == [[]] * 5
    assert sorting(agreed, USUAL, asked=4, first=3) == [3]
    assert sorting(agreed, USUAL, asked=4) == [1]


@pytest.mark.parametrize("between", [(USUAL, COUNTER), (MORE,), ()])
def test_rounds_that_do_not_agree_begin_the_count_again(between: tuple[Form, ...]) -> None:
    agreed, again = Agreed(), Agreed()
    assert sorting(agreed, MORE, MORE) == [1, 2]
    for node, forms in enumerate([(USUAL,), between, (USUAL,), (USUAL,)], 1):
        assert sorting(agreed, *forms, asked=1, first=node) == ([node] if forms == (MORE,) else [])
    again.load(agreed.state())  # two rounds in a row: they are in the checkpoint
    assert sorting(again, USUAL, asked=1) == [1]
