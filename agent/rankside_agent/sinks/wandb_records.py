"""The records of a W&B transaction log, as its own client writes them offline.

Separate because only this file knows W&B's protobufs; what it writes is held against what W&B itself writes
for the same calls in a test.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rankside_agent.sinks.flat import writable
from rankside_agent.sinks.wandb_rows import STEP, Row

if TYPE_CHECKING:
    from wandb.proto.wandb_internal_pb2 import Record


class Identity(NamedTuple):
    """How a run is named in W&B."""

    id: str
    project: str
    name: str
    entity: str = ""


class Labels(NamedTuple):
    """What a user's environment adds to it."""

    tags: tuple[str, ...] = ()
    notes: str = ""
    group: str = ""
    job_type: str = ""


def beginning(identity: Identity, labels: Labels, started: float) -> list[bytes]:
    """The first records of a file."""
    return [_header(), _run(identity, labels, started), *_metrics()]


def renamed(data: bytes, identity: Identity) -> bytes:
    """A record as it would stand in the file of another run."""
    record = _parsed(data)
    if record.WhichOneof("record_type") == "run":
        record.run.run_id, record.run.display_name = identity.id, identity.name
    return _packed(record)


def history(row: Row, runtime: float) -> bytes:
    """One row."""
    record = _record()
    items = record.history.item
    for name, value in (*row.values.items(), ("_step", row.number), ("_runtime", runtime)):
        item = items.add()
        item.nested_key.append(name)
        item.value_json = json.dumps(value)
    record.history.step.num = row.number
    return _packed(record)


def config(values: Mapping[str, Any]) -> bytes:
    """Parameters, each replaced as a whole."""
    record = _record()
    record.config.SetInParent()
    for name, value in values.items():
        item = record.config.update.add()
        item.key, item.value_json = name, json.dumps(plain(value))
    return _packed(record)


def summary(values: Mapping[str, Any]) -> bytes:
    """Newest values."""
    record = _record()
    record.summary.SetInParent()  # also without values: a record of no kind ends `wandb sync` with a panic
    for name, value in values.items():
        item = record.summary.update.add()
        item.nested_key.append(name)
        item.value_json = json.dumps(value)
    return _packed(record)


def file(path: str) -> bytes:
    """A file below the run's `files`, to be uploaded."""
    record = _record()
    record.files.files.add().path = path
    return _packed(record)


def end(exit_code: int) -> bytes:
    """The run is over."""
    record = _record()
    record.exit.exit_code = exit_code
    return _packed(record)


class Found(NamedTuple):
    """What a record holds."""

    kind: str  # run, history, config, files, exit and others
    row: Row | None = None
    values: Mapping[str, Any] = {}


def read(data: bytes) -> Found:
    """A record of a file that is there. Raises ValueError."""
    try:
        record = _parsed(data)
    except Exception as error:  # noqa: BLE001  protobuf's DecodeError, whose place depends on its version
        raise ValueError(f"no record of W&B: {error}") from None
    kind = record.WhichOneof("record_type") or ""
    if kind == "history":
        values = {
            "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
        }
        number = int(values.pop("_step", record.history.step.num))
        values.pop("_runtime", None)
        return Found(kind, Row(number, values))
    if kind == "config":
        return Found(kind, None, {item.key: json.loads(item.value_json) for item in record.config.update})
    if kind == "files":
        return Found(kind, None, {item.path: None for item in record.files.files})
    if kind == "run":
        began = record.run.start_time.ToNanoseconds() / 1e9
        return Found(kind, None, {"started": began})
    if kind == "exit":
        return Found(kind, None, {"exit_code": record.exit.exit_code})
    return Found(kind)


def plain(value: Any) -> Any:
    """As W&B's server takes it in JSON: no NaN, no number beyond what JavaScript or Go reads."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, dict):
        return {str(plain(str(name))): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def _record() -> Record:
    from wandb.proto.wandb_internal_pb2 import Record

    return Record()


def _packed(record: Record) -> bytes:
    packed: bytes = record.SerializeToString()
    return packed


def _parsed(data: bytes) -> Record:
    record = _record()
    record.ParseFromString(data)
    return record


def _header() -> bytes:
    from wandb import __version__

    record = _record()
    record.header.version_info.producer = __version__
    record.header.version_info.min_consumer = "0.70.0"  # as W&B's own files say
    return _packed(record)


def _run(identity: Identity, labels: Labels, started: float) -> bytes:
    from wandb import __version__

    record = _record()
    run = record.run
    run.run_id, run.project, run.display_name, run.entity = (
        identity.id,
        identity.project,
        identity.name,
        identity.entity,
    )
    run.notes, run.run_group, run.job_type = labels.notes, labels.group, labels.job_type
    run.tags.extend(labels.tags)
    run.start_time.FromNanoseconds(int(started * 1e9))
    run.telemetry.cli_version = __version__
    run.telemetry.feature.offline = True
    # Not `resume`: that would make `wandb sync` give the rows other numbers than ours
    item = run.config.update.add()
    item.key, item.value_json = "_wandb", "{}"
    return _packed(record)


def _metrics() -> list[bytes]:
    step, others = _record(), _record()
    step.metric.name = STEP
    step.metric.options.defined = True
    others.metric.glob_name, others.metric.step_metric = "*", STEP
    others.metric.options.defined = others.metric.options.step_sync = True
    return [step.SerializeToString(), others.SerializeToString()]
