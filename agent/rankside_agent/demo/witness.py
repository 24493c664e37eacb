"""Run the example as it is, and write down what it logs and measures without any help of rankside.

Separate from the example, which stays a plain script: `torchrun -m rankside_agent.demo.witness FOLDER ...`.
"""

from __future__ import annotations

import logging
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loguru import logger

import rankside
from rankside_agent.demo.account import Account, Line, Point

if TYPE_CHECKING:
    from loguru import Message

EXAMPLE = Path(__file__).with_name("train.py")


def main() -> None:
    folder = Path(sys.argv.pop(1))
    account = Account(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
    hear_logging(account)
    hear_loguru(account)
    hear_metrics(account)
    try:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    finally:
        account.save(folder)


def hear_logging(account: Account) -> None:
    """What the example says through the standard library."""
    logging.getLogger("train").addHandler(_Ear(account))


class _Ear(logging.Handler):
    def __init__(self, account: Account) -> None:
        super().__init__(level=1)
        self.account = account

    def emit(self, record: logging.LogRecord) -> None:
        if record.pathname == str(EXAMPLE):
            self.account.lines.append(Line(record.levelno, record.getMessage(), bool(record.exc_info)))


def hear_loguru(account: Account) -> None:
    """What the example says through loguru."""

    def hear(message: Message) -> None:
        record = message.record
        if record["file"].path == str(EXAMPLE):
            account.lines.append(Line(record["level"].no, record["message"], record["exception"] is not None))

    logger.add(hear, level=0)


def hear_metrics(account: Account) -> None:
    """The numbers that the example hands to `mon.metrics`, which still reach it."""
    hand_on = rankside.Monitor.metrics

    def metrics(self: rankside.Monitor, values: Mapping[str, Any], step: int | None = None) -> None:
        account.exp_root = self.exp_root
        for tag, value in values.items():
            account.points.setdefault(tag, []).append(Point(step or 0, float(value)))
        hand_on(self, values, step)

    rankside.Monitor.metrics = metrics  # type: ignore[method-assign]  # no other way leaves the example untouched


if __name__ == "__main__":
    main()
