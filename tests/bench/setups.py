"""What is called in a worker process: each set-up gives the calls that a training would make.

A set-up is a context manager that yields {name: (callable, arguments)}. One process holds one set-up only, so
that no candidate pays for another's handlers or threads. The call DROPPED, where there is one, tells how many
records found no room: a figure of records that were not kept would be no figure.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from local_mlflow import mlflow_server
from samples import LOG_RECORD, MANY_SCALARS, METRICS_RECORD, SCALARS, STEP, TEXT

Calls = dict[str, tuple[Callable[..., object], tuple[Any, ...]]]
DROPPED = "dropped"
OURS = "rankside"
_WELCOME = 20.0  # seconds for a living agent to take the first record


@contextmanager
def pack(_folder: Path) -> Iterator[Calls]:
    """Bare msgpack.packb of the finished records: no clock, no lock, nothing kept."""
    import msgpack

    yield {"log": (msgpack.packb, (LOG_RECORD,)), "metrics": (msgpack.packb, (METRICS_RECORD,))}


@contextmanager
def nulls(_folder: Path) -> Iterator[Calls]:
    """The front ends' own cost: everything is done except that nobody takes the record."""
    root = logging.getLogger()
    root.addHandler(logging.NullHandler())
    root.setLevel(logging.INFO)
    yield {"log": (logging.getLogger("megatron.train").info, (TEXT,))}


@contextmanager
def loguru_bare(_folder: Path) -> Iterator[Calls]:
    """loguru with a sink that drops, and nothing formatted: what rankside asks of it."""
    from loguru import logger

    logger.remove()
    logger.add(lambda _: None, format=lambda _: "", colorize=False, diagnose=False)
    yield {"log": (logger.info, (TEXT,))}


@contextmanager
def loguru_null(_folder: Path) -> Iterator[Calls]:
    """loguru with a sink that drops the text of its default format."""
    from loguru import logger

    logger.remove()
    logger.add(lambda _: None)
    yield {"log": (logger.info, (TEXT,))}


@contextmanager
def loguru_four(folder: Path) -> Iterator[Calls]:
    """loguru as Primus sets it up: a rotated file for each level, each with that level and above."""
    from loguru import logger

    logger.remove()
    bound = logger.bind(
        user="user", team="team", module_name="pretrain", node_ip="10.0.0.7", rank=7, world_size=8
    )
    form = (
        "[{time:YYYYMMDD HH:mm:ss}][{extra[user]}/{extra[team]}][{extra[module_name]: <11}]"
        "[ip-{extra[node_ip]}][rank-{extra[rank]}/{extra[world_size]}][{level.name}] "
        "[{file.name}:{line}] : {message}"
    )
    for level in ("debug", "info", "warning", "error"):
        path = folder / f"{level}.log"
        logger.add(path, level=level.upper(), format=form, rotation="10 MB", colorize=False)
    yield {"log": (bound.info, (TEXT,))}


@contextmanager
def file_handler(folder: Path) -> Iterator[Calls]:
    """stdlib logging into one file."""
    handler = logging.FileHandler(folder / "train.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s:%(lineno)d %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield {"log": (logging.getLogger("megatron.train").info, (TEXT,))}


@contextmanager
def queue_handler(folder: Path) -> Iterator[Calls]:
    """stdlib's own way out of the caller's thread: a queue, and a thread that writes the file."""
    import queue
    from logging.handlers import QueueHandler, QueueListener

    file = logging.FileHandler(folder / "train.log")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s:%(lineno)d %(message)s"))
    waiting: queue.Queue[logging.LogRecord] = queue.Queue()
    listener = QueueListener(waiting, file)
    listener.start()
    root = logging.getLogger()
    root.addHandler(QueueHandler(waiting))
    root.setLevel(logging.INFO)
    yield {"log": (logging.getLogger("megatron.train").info, (TEXT,))}
    listener.stop()


@contextmanager
def structlog_json(folder: Path) -> Iterator[Calls]:
    """structlog as its documentation sets it up for speed: JSON as bytes into a file."""
    import structlog

    with (folder / "train.log").open("wb", buffering=0) as file:
        structlog.configure(
            cache_logger_on_first_use=True,
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.format_exc_info,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.JSONRenderer(serializer=lambda value, **_: json.dumps(value).encode()),
            ],
            logger_factory=structlog.BytesLoggerFactory(file=file),
        )
        yield {"log": (structlog.get_logger().info, (TEXT,))}


@contextmanager
def printing(folder: Path) -> Iterator[Calls]:
    """print into a file, line by line, as a job's stdout is."""
    with (folder / "stdout").open("w", buffering=1) as file:
        yield {"print": (partial(print, file=file), (TEXT,))}


@contextmanager
def wandb_offline(folder: Path) -> Iterator[Calls]:
    """W&B's run.log without a server: what it costs at its best."""
    import wandb

    settings = wandb.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True)
    run = wandb.init(project="bench", dir=str(folder), mode="offline", settings=settings)
    yield {"metrics": (run.log, (SCALARS,)), "many": (run.log, (MANY_SCALARS,))}
    run.finish()


@contextmanager
def mlflow_local(folder: Path) -> Iterator[Calls]:
    """mlflow.log_metrics to a server on this machine, on sqlite."""
    import mlflow

    with mlflow_server(folder) as address:
        mlflow.set_tracking_uri(address)
        with mlflow.start_run():
            yield {
                "metrics": (partial(mlflow.log_metrics, step=STEP), (SCALARS,)),
                "many": (partial(mlflow.log_metrics, step=STEP), (MANY_SCALARS,)),
            }


@contextmanager
def summary_writer(folder: Path) -> Iterator[Calls]:
    """torch's TensorBoard writer, one add_scalar for each of the four."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))

    def four() -> None:
        for name, value in SCALARS.items():
            writer.add_scalar(name, value, STEP)

    yield {"metrics": (four, ())}
    writer.close()


@contextmanager
def rankside_calls(folder: Path) -> Iterator[Calls]:
    """A monitor that captures both kinds of logging. $RANKSIDE_ENDPOINT says whether an agent is there."""
    from loguru import logger

    import rankside

    logger.remove()
    absent = os.environ.get("BENCH_NO_AGENT") == "1"
    mon = rankside.init(exp_root=folder, rank=0, world_size=1, flush_seconds=0 if absent else 2.0)
    mon.capture_logging()
    if not absent:
        mon.log("before the measurement")
        _await_agent(mon)
    yield {
        "metrics": (mon.metrics, (SCALARS, STEP)),
        "many": (mon.metrics, (MANY_SCALARS, STEP)),
        "log": (logging.getLogger("megatron.train").info, (TEXT,)),
        "loguru": (logger.info, (TEXT,)),
        DROPPED: (lambda: mon._spool.dropped() + mon.lost, ()),
    }
    mon.close()


def _await_agent(mon: Any) -> None:
    if not mon._transport.flush(_WELCOME):
        raise RuntimeError("the agent did not take the first record")


SETUPS: dict[str, Callable[[Path], AbstractContextManager[Calls]]] = {
    "pack": pack,
    "nulls": nulls,
    "loguru bare": loguru_bare,
    "loguru null": loguru_null,
    "loguru four": loguru_four,
    "file handler": file_handler,
    "queue handler": queue_handler,
    "structlog": structlog_json,
    "print": printing,
    "summary writer": summary_writer,
    "wandb offline": wandb_offline,
    "mlflow local": mlflow_local,
    OURS: rankside_calls,
}
