"""The samples of one run on this node, and where their answers go: both journals of the run.

Separate from the run, which knows channels and attempts and nothing of throughput. What is answered when is
on disk: after a crash the samples without an answer are read again, and an answer that is already in a
journal is not stored there a second time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from rankside import wire
from rankside.identity import Hello
from rankside.wire import Kind
from rankside_agent.gauges import Seen
from rankside_agent.journal import Entry, EntryType, Journal, Position, Reader
from rankside_agent.progress import Channel
from rankside_agent.training.lent import Known, Lent
from rankside_agent.training.memory import Memory
from rankside_agent.training.neighbours import Neighbours
from rankside_agent.training.rank_memory import figures_of, memory_of, said_device
from rankside_agent.training.sample import whole
from rankside_agent.training.samples import Answer, Samples, floats, polls

Poll = Callable[[Callable[[Seen | None], None]], None]


def unanswered(then: Callable[[Seen | None], None]) -> None:
    """The poll of a process that cannot ask for GPUs."""
    then(None)


class Answers:
    """Owned by the agent's loop. `channels` gives those that live; `devices` is what ranks said of their GPU.

    `lent` what was found out of their losses, by attempt; both are kept in run.json by `changed`.

    `poll(then)` asks for the node's GPUs and calls `then` from the loop, with None where nobody answers.
    """

    def __init__(
        self,
        logs: Journal,
        points: Journal,
        channels: Callable[[], Iterable[Channel]],
        devices: dict[str, dict[str, Any]],
        lent: dict[str, dict[str, Any]],
        poll: Poll,
        changed: Callable[[], None],
        neighbours: Neighbours,
    ) -> None:
        self._logs = logs
        self._points = points
        self._channels = channels
        self._devices = devices
        self._known = lent
        self._poll = poll
        self._changed = changed
        self._neighbours = neighbours
        self._numbers: Counter[int] = Counter()  # samples of ranks that are not answered here, by channel
        self._samples: dict[int, Samples] = {}
        self._left: dict[int, Lent] = {}  # of last ranks that have ended without a word, by attempt

    @property
    def waiting(self) -> bool:
        """Whether a sample has no answer yet."""
        return any(samples.waiting for samples in self._samples.values())

    def recover(self, channel: Channel) -> None:
        """What this channel's samples were when the last agent died, and others' metrics. Raises OSError."""
        known = self._points.state.channels.get(channel.index)
        if known is None or not known.resume or not channel.speaks:
            return
        place = Position(*known.resume["place"])
        reader = Reader(self._points.folder, place)
        while entries := reader.read():
            for entry in entries:
                if entry.type == EntryType.BATCH and entry.channel == channel.index:
                    for seq, kind, body in entry.frames():
                        self._take_carefully(channel, seq, kind, body, place)
                elif entry.type == EntryType.BATCH:
                    self._overhear(channel, entry)
                place = entry.after
        reader.close()

    def expect(self, channel: Channel, kinds: Iterable[int]) -> None:
        """Before records are stored: note the place, to find a first sample again. Raises OSError."""
        known = self._points.state.channels.get(channel.index)
        if channel.speaks and known is not None and not known.resume and Kind.THROUGHPUT in kinds:
            self._store(channel.index, 0, time.time(), None, {}, {"place": list(self._points.end)})

    def take(self, channel: Channel, seq: int, kind: int, fields: Any, place: Position) -> None:
        """One record that is stored behind `place`. Raises what a stranger's record makes it raise."""
        if kind == Kind.THROUGHPUT:
            self._look(channel, fields)
        if channel.speaks:
            self._of(channel).take(seq, kind, fields, place)
        elif kind == Kind.THROUGHPUT:
            self._measure_for_others(channel)
        elif kind == Kind.METRICS and _counts(channel):
            self._hear(channel, fields)

    def tick(self, now: float) -> None:
        """Answer what is ready. Raises OSError; nothing is lost, the next call goes on."""
        for index, samples in self._samples.items():
            if samples.waiting:
                for answer in samples.due(now):
                    self._give(index, answer)

    def end(self, channel: Channel) -> None:
        """No more will come of this channel: answer all, with what is known. Raises OSError."""
        samples = self._samples.get(channel.index)
        if samples is not None:
            for answer in samples.due(time.monotonic(), all_now=True):
                self._give(channel.index, answer)
            samples.lent.ended()
            del self._samples[channel.index]
        if channel.speaks and len(self._beside(channel)) > 1 and not self._known_of(channel.attempt).spoken:
            self._left[channel.attempt] = self._lent(channel)

    def silent(self, channel: Channel, seconds: float) -> None:
        """This last rank has sent no metrics for so long, while others have."""
        self._of(channel).lent.silent(seconds)

    def system(self, at: float, seen: Seen | None, host: Mapping[str, float]) -> None:
        """Figures of the node, for the run that goes on here. Raises OSError."""
        speaking = [channel for channel in self._channels() if channel.speaks]
        if not speaking:
            return
        values = {**host, **figures_of(seen, self._beside(speaking[-1]), self._devices)}
        if values:
            self._store(speaking[-1].index, 0, at, None, values, None)

    def _take_carefully(self, channel: Channel, seq: int, kind: int, body: bytes, place: Position) -> None:
        try:
            self.take(channel, seq, kind, wire.unpack(body), place)
        except Exception:  # noqa: BLE001  a stranger's record; it was told of when it came
            return

    def _look(self, channel: Channel, fields: Any) -> None:
        """What any rank tells beside its speed: its GPU, and its timers."""
        values = fields[2]
        label = channel.hello.label
        device = said_device(values.get("device"))
        if device is not None and self._devices.get(label) != device:
            self._devices[label] = device
            self._changed()
        timers = values.get("timers")
        if isinstance(timers, dict) and not channel.hello.parent:
            for other in self._channels():
                if other.speaks and other.attempt == channel.attempt:
                    self._of(other).take_timers(label, fields[1], timers)

    def _hear(self, channel: Channel, fields: Any) -> None:
        """Metrics of a rank that is not the last."""
        step, values = whole(fields[1]), floats(fields[2])
        for other in self._channels():
            if other.speaks and other.attempt == channel.attempt:
                self._of(other).lent.hear(channel.hello.label, step, values)
                return
        left = self._left.pop(channel.attempt, None)
        if left is not None:
            left.hear(channel.hello.label, step, values)
            left.ended()

    def _overhear(self, channel: Channel, entry: Entry) -> None:
        """What another rank said while this one's samples were without an answer."""
        info = entry.info
        if info.get("attempt") != channel.attempt or info.get("parent") or info.get("role") != "worker":
            return
        for _, kind, body in entry.frames():
            if kind == Kind.METRICS:
                with suppress(ValueError, TypeError, LookupError):  # as in _take_carefully
                    _, step, values = wire.unpack(body)
                    self._of(channel).lent.hear(str(info["label"]), whole(step), floats(values))

    def _measure_for_others(self, channel: Channel) -> None:
        """The last rank is on another node: the highest rank here asks for this node's GPUs, and tells."""
        self._numbers[channel.index] += 1
        beside = [each for each in self._channels() if each.attempt == channel.attempt and _counts(each)]
        highest = max(beside, key=lambda each: each.hello.rank or 0, default=None)
        if highest is channel and polls(channel.hello.config, self._numbers[channel.index]):

            def told(seen: Seen | None) -> None:
                memory = self._memory(channel, seen)
                if memory is not None:
                    self._neighbours.tell(channel.attempt, channel.hello.host, memory)

            self._poll(told)

    def _of(self, channel: Channel) -> Samples:
        found = self._samples.get(channel.index)
        if found is None:
            known = self._points.state.channels.get(channel.index)

            def ask(then: Callable[[Memory | None], None]) -> None:
                self._poll(lambda seen: then(self._memory(channel, seen)))

            def ranks() -> set[str]:
                return {hello.label for hello in self._beside(channel)}

            def elsewhere() -> Memory | None:
                alone = len(ranks()) >= hello.world_size
                return None if alone else self._neighbours.fullest(channel.attempt, hello.host)

            hello, resume = channel.hello, known.resume if known else {}
            lent = self._lent(channel)
            found = Samples(hello.config, hello.world_size, ask, ranks, resume, elsewhere, lent)
            self._samples[channel.index] = found
        return found

    def _known_of(self, attempt: int) -> Known:
        return Known.of(self._known.get(str(attempt), {}))

    def _lent(self, channel: Channel) -> Lent:
        attempt, known = channel.attempt, self._known_of(channel.attempt)

        def changed() -> None:
            self._known[str(attempt)] = known.plain()
            self._changed()

        def tell(number: int, level: str, text: str) -> None:
            beside = [each for each in self._channels() if each.attempt == attempt and _counts(each)]
            target = next((each for each in beside if each.speaks), beside[0] if beside else None)
            if target is not None:
                with suppress(OSError):  # a full disk is told of by others
                    self._logs.note(target.index, time.time(), number, level, text)

        return Lent(channel.hello.label, channel.hello.world_size, known, changed, tell)

    def _memory(self, channel: Channel, seen: Seen | None) -> Memory | None:
        return memory_of(seen, channel.hello.label, self._beside(channel), self._devices)

    def _beside(self, channel: Channel) -> list[Hello]:
        """The ranks of this node in the same attempt."""
        return [each.hello for each in self._channels() if each.attempt == channel.attempt and _counts(each)]

    def _give(self, index: int, answer: Answer) -> None:
        """The lines first: the points' journal is the one that says how far it is."""
        self._logs.lines(index, answer.seq, answer.time, answer.texts)
        self._store(index, answer.seq, answer.time, answer.step, answer.values, answer.resume)

    def _store(
        self,
        index: int,
        sample: int,
        at: float,
        step: int | None,
        values: Mapping[str, float],
        resume: Mapping[str, Any] | None,
    ) -> None:
        value = {"sample": sample, "time": at, "step": step, "values": dict(values), "resume": resume}
        self._points.figures(index, value)


def _counts(channel: Channel) -> bool:
    """Whether it is a rank, and no launcher or forked child."""
    return channel.hello.role == "worker" and not channel.hello.parent
