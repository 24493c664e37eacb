"""The Weights & Biases sink: the run's points as one W&B run, the same for all attempts.

| record     | in W&B |
| ---------- | ------ |
| metrics    | columns of a row; consecutive calls of one step make one row, drawn over `train_step` |
| throughput | the same: `iteration-time`, and what the agent makes of the sample |
| params     | config; one that a later attempt changes is kept as `attempt_{n}.{name}`, too |
| event      | a text `events/{name}` in the row, its fields as JSON |
| artifact   | a file below `artifacts/`, and the event |

Every row has its number in the run, its `attempt`, and the time at which it was logged. Steps that an attempt
does again are rows of their own: nothing is dropped, whatever order the steps come in.

online       rows go through W&B's client; the position is stored when the server says that it has them
offline      without a key, or with WANDB_MODE=offline: one folder below {exp_root}/wandb, for `wandb sync`
stand-in     a server that does not answer: the same folder, until it does; then all goes there by itself
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from rankside_agent.sinks import wandb_names, wandb_run, wandb_server
from rankside_agent.sinks.base import Counts, GoBack, Outcome, Run, Sink
from rankside_agent.sinks.points import Point
from rankside_agent.sinks.wandb_patience import Patience
from rankside_agent.sinks.wandb_server import Away
from rankside_agent.sinks.wandb_track import Track

log = logging.getLogger(__name__)

_PATIENCE = Patience()  # of this process: sinks are made anew with each failure


class Wandb(Sink):
    """Writes W&B runs. Its state is that of each run, by its attempt ("" for the one that is continued)."""

    name = "wandb"
    flush_seconds = 5.0  # each asks the server once or twice

    def __init__(self, run: Run, state: Mapping[str, Any], counts: Counts) -> None:
        super().__init__(run, state, counts)
        wandb_names.settle_environ()
        self._disabled = wandb_names.switched_off_by()
        if self._disabled:
            log.warning("W&B is switched off by %s; nothing goes there", self._disabled)
        self._tracks: dict[str, Track] = {}
        for name, found in state.items():
            self._tracks[name] = Track(run, name, found, counts, _PATIENCE)
        self._look_for_server()

    @staticmethod
    def wanted(config: Mapping[str, Any]) -> bool:
        """As Primus decides."""
        return wandb_names.wanted(config)

    @property
    def provisional(self) -> bool:
        """Whether the server is away, and a folder stands in for it."""
        return any(track.away for track in self._tracks.values())

    @property
    def remark(self) -> str:
        """Where the rows are, if not at the server; what brings them there is a line of its own, indented."""
        if self._disabled:
            return f"switched off by {self._disabled}"
        return "\n".join(track.note for track in self._tracks.values() if track.note)

    def write(self, point: Point) -> None:
        """Put a point into the run of its attempt. Raises OSError, Away."""
        if self._disabled:
            return
        name = point.source.beside
        if name not in self._tracks:
            self._tracks[name] = Track(self.run, name, {}, self.counts, _PATIENCE)
        self._tracks[name].take(point)

    def flush(self) -> None:
        """Until the server says that it has everything, or the disk. Raises OSError, Away, GoBack."""
        for track in self._tracks.values():
            track.flush()
        self._look_for_server()

    def state(self) -> dict[str, Any]:
        """As of the last flush."""
        return {name: track.state() for name, track in self._tracks.items()}

    def finish(self, outcome: Outcome) -> Iterator[None]:
        """Tell W&B how each run ended. Raises OSError, Away."""
        if self._disabled:
            return
        for track in self._tracks.values():
            yield from track.finish(outcome)
            yield

    def close(self) -> None:
        """Let go of everything, within seconds."""
        for track in self._tracks.values():
            track.close()
        wandb_run.leave()

    def _look_for_server(self) -> None:
        """Go back to where the stand-in began, once the server is there again. Raises GoBack."""
        if self._disabled or not self.provisional or not _PATIENCE.due or _PATIENCE.went_back:
            return  # gone back once already, in vain: the run is opened at the next point
        login = wandb_server.login(self.run.folder)
        if login is None:
            return
        try:
            wandb_server.alive(login)
        except Away as error:
            log.info("%s", error)
            _PATIENCE.failed(str(error))
            for track in self._tracks.values():
                track.still_away(str(error))
            return
        _PATIENCE.went_back = True
        raise GoBack
