"""Points as TensorBoard's protocol buffers, packed.

Separate because this is all there is of TensorBoard in the sink: its `summary` helpers import numpy and,
where it is installed, TensorFlow; the protocol buffers alone load in 30 ms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2

from rankside_agent.sinks.flat import flat, writable

HEADER_RECORDS = 2
_NEVER = 2**62  # a step that no event reaches

_SPECIAL = re.compile(r"([\\`*_{}\[\]|])")  # of Markdown, inside a table


def header(time: float) -> list[bytes]:
    """The first records of a file.

    TensorBoard takes the first START of a run as its beginning and drops nothing, while other readers drop
    what is at its step or later. So each file has one at a step that drops nothing anywhere, and every later
    START means the same to all.
    """
    version = event_pb2.Event(wall_time=time, file_version="brain.Event:2")
    version.source_metadata.writer = "rankside"
    return [_packed(version), start(_NEVER, time)]


def start(step: int, time: float) -> bytes:
    """Readers drop what they have seen at `step` and later: it is done again from here on."""
    log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    return _packed(event_pb2.Event(wall_time=time, step=step, session_log=log))


def scalars(values: Mapping[str, float], step: int, time: float) -> bytes:
    """Numbers of one step, under their own names."""
    try:
        return _scalars(values, step, time)
    except UnicodeEncodeError:  # a lone surrogate: no protocol buffer can hold it
        return _scalars({writable(name): value for name, value in values.items()}, step, time)


def _scalars(values: Mapping[str, float], step: int, time: float) -> bytes:
    event = event_pb2.Event(wall_time=time, step=step)
    add = event.summary.value.add
    for name, value in values.items():
        add(tag=name, simple_value=value)
    return _packed(event)


def table(tag: str, values: Mapping[str, Any], step: int, time: float) -> bytes:
    """Names and values as a Markdown table, which TensorBoard's Text page shows."""
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in flat(values)]
    return text(tag, "\n".join(["| name | value |", "| --- | --- |", *rows]), step, time)


def text(tag: str, content: str, step: int, time: float) -> bytes:
    """A text."""
    event = event_pb2.Event(wall_time=time, step=step)
    value = event.summary.value.add(tag=writable(tag))
    value.metadata.plugin_data.plugin_name = "text"
    value.metadata.data_class = summary_pb2.DATA_CLASS_TENSOR
    value.tensor.CopyFrom(
        tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[writable(content).encode()])
    )
    value.tensor.tensor_shape.SetInParent()  # without dimensions: one text, not a list of one
    return _packed(event)


def _cell(content: str) -> str:
    content = content.replace("&", "&amp;").replace("<", "&lt;")
    return _SPECIAL.sub(r"\\\1", content).replace("\r\n", "\n").replace("\r", "\n").replace("\n", "<br>")


def _packed(event: Any) -> bytes:
    data: bytes = event.SerializeToString()
    return data
