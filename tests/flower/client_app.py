"""The clients of `federation.py` for a real deployment: they keep a diary, and take their time in the first round."""

from __future__ import annotations

import json
import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from .federation import evaluate, partition_of, train

app = ClientApp()
app.evaluate()(evaluate)


@app.train()
def train_and_tell(message: Message, context: Context) -> Message:
    """A line before the work and one after it: who was killed in between has written the first alone."""
    round = message.content.config_records["config"]["server-round"]
    note: dict[str, object] = {"partition": partition_of(context), "round": round}
    _write(context, note | {"done": False})
    if round == 1:
        time.sleep(5)  # time enough to be killed
    reply = train(message, context)
    _write(context, note | {"done": True})
    return reply


def _write(context: Context, note: dict[str, object]) -> None:
    with Path(str(context.run_config["diary"])).open("a") as diary:
        diary.write(json.dumps(note) + "\n")
