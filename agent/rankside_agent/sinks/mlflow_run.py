"""Find or create the experiment and its one run, whoever else does the same at this moment.

Separate because this is all about others: agents that start together, replies that were lost, people who
delete things. MLflow creates a run anew for each request, so ours carries a tag by which it is found again:
it is looked for before one is created, and again after. Who has chosen one claims it with a tag and looks
again; so where several were created all choose the same one, and the others are deleted while they are empty.

A run or an experiment that was deleted while the training goes on is restored, with a word in the log: its
points have nowhere else to go. One that is gone for good is made anew, and holds what comes from then on.
With an experiment MLflow restores all its runs, and does not know which were deleted before it; so all others
are deleted again, as whoever deleted the experiment wanted. They are noted in a file until that is done.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankside_agent import files
from rankside_agent.sinks.flat import writable
from rankside_agent.sinks.mlflow_client import Tracker
from rankside_agent.sinks.mlflow_errors import Missing, Refused
from rankside_agent.sinks.points import Source

log = logging.getLogger(__name__)

IDENTITY = "rankside.run"
CREATED = "rankside.created"
CLAIMED = "rankside.claimed"
DUPLICATE = "rankside.duplicate_of"
SETTLE_SECONDS = 0.3  # until others who looked before our run was there have created theirs
_LONGEST_NAME = 250
_DELETED_ONLY = 2  # MLflow's ViewType
_PAGE = 1000


class TrackerRun:
    """One run in the tracker; `identity` is the same for all who mean it. `run_id` as of the last state.

    `folder` is for what must not be forgotten by a death.
    """

    def __init__(self, tracker: Tracker, identity: str, run_id: str, folder: Path) -> None:
        self.tracker = tracker
        self.identity = identity
        self.source: Source | None = None  # says how to name what must be created
        self.params: dict[str, str] = {}  # that it holds, once it is open
        self.artifact_uri = ""
        self.ended = False  # whether its end was told, and no point came after it
        self._revived = folder / "revived.json"
        self._id = run_id
        self._open = False

    @property
    def id(self) -> str:
        """The run's id, found or created now if need be. Raises Away or Refused."""
        if not self._open:
            self._take(self._known() or self._found_or_created())
        return self._id

    @property
    def known_id(self) -> str:
        """The same without asking; empty before the run was opened for the first time."""
        return self._id

    def gone(self) -> bool:
        """After a refusal: whether it was because of the run itself, which is now open again."""
        try:
            lost = bool(self.tracker.call("get_run", self._id).info.lifecycle_stage == "deleted")
        except Missing:
            lost = True
        if lost:
            self._open = False
            _ = self.id
        return lost

    def settle(self) -> None:
        """Delete the empty duplicates that a lost reply may have left."""
        experiment = self.tracker.call("get_run", self.id).info.experiment_id
        self._others(self._search(experiment), self._id)

    def _take(self, run: Any) -> None:
        self._id = run.info.run_id
        self.artifact_uri = run.info.artifact_uri
        self.params = dict(run.data.params)
        self._delete_again(self._id)
        if run.info.status != "RUNNING" and not self.ended:
            self.tracker.call("update_run", self._id, status="RUNNING")
        self._open = True

    def _known(self) -> Any:
        """The run of the last state, restored if need be."""
        if not self._id:
            return None
        try:
            run = self.tracker.call("get_run", self._id)
        except Missing:
            log.warning("run %s is not in the tracker (any more?), nor are its points", self._id)
            return None
        if run.info.lifecycle_stage != "deleted":
            return run
        if DUPLICATE in run.data.tags:
            return None
        log.warning("run %s was deleted while its training goes on, and is restored", self._id)
        self._restore_experiment(self.tracker.call("get_experiment", run.info.experiment_id))
        if self.tracker.call("get_run", self._id).info.lifecycle_stage == "deleted":
            self.tracker.call("restore_run", self._id)
        return run

    def _found_or_created(self) -> Any:
        if self.source is None:
            raise Refused("no point of the run has come yet")
        experiment = self._experiment(experiment_name(self.source, self.tracker))
        runs = self._search(experiment)
        if not runs:
            self._create(experiment, self.source)
            time.sleep(SETTLE_SECONDS)
            runs = self._search(experiment)
        if not runs:
            raise Missing("the run just created cannot be found")
        while CLAIMED not in runs[0].data.tags:
            self._claim(runs[0].info.run_id)
            runs = self._search(experiment)
        self._others(runs, runs[0].info.run_id)
        return runs[0]

    def _search(self, experiment: str) -> list[Any]:
        """All runs that are ours, the one to take first."""
        found = self.tracker.call("search_runs", [experiment], f"tags.`{IDENTITY}` = '{self.identity}'")
        return sorted(found, key=_order)

    def _create(self, experiment: str, source: Source) -> None:
        tags = {IDENTITY: self.identity, CREATED: f"{time.time():.6f}", "mlflow.user": source.user}
        self.tracker.call(
            "create_run",
            experiment,
            start_time=int(source.started * 1000),
            tags=tags,
            run_name=run_name(source),
        )

    def _claim(self, run_id: str) -> None:
        """Say that this is the one, for those who come later, or whose own was late."""
        try:
            self.tracker.call("set_tag", run_id, CLAIMED, f"{time.time():.6f}")
        except Refused as error:
            log.info("%s", error)  # another took another, and has deleted this one
        time.sleep(SETTLE_SECONDS)

    def _others(self, runs: list[Any], chosen: str) -> None:
        for run in runs:
            if run.info.run_id != chosen and not run.data.metrics:
                log.warning("deleting run %s, a duplicate of %s without points", run.info.run_id, chosen)
                try:
                    self.tracker.call("set_tag", run.info.run_id, DUPLICATE, chosen)
                    self.tracker.call("delete_run", run.info.run_id)
                except Refused as error:
                    log.info("%s", error)  # another was quicker

    def _experiment(self, name: str) -> str:
        found = self.tracker.call("get_experiment_by_name", name)
        if found is None:
            try:
                self.tracker.call("create_experiment", name, self.tracker.artifact_location)
            except Refused as error:
                log.info("experiment %s: %s", name, error)  # another was quicker
            found = self.tracker.call("get_experiment_by_name", name)
        if found is None:
            raise Refused(f"experiment {name!r} can neither be found nor created")
        self._restore_experiment(found)
        return str(found.experiment_id)

    def _restore_experiment(self, experiment: Any) -> None:
        if experiment.lifecycle_stage == "deleted":
            log.warning("experiment %s was deleted, and is restored: a training goes on", experiment.name)
            files.replace_json(self._revived, self._deleted(experiment.experiment_id))
            self.tracker.call("restore_experiment", experiment.experiment_id)

    def _deleted(self, experiment: str) -> list[str]:
        """The ids of its deleted runs."""
        found: list[str] = []
        token = ""
        while True:
            page = self.tracker.call(
                "search_runs", [experiment], "", _DELETED_ONLY, _PAGE, page_token=token or None
            )
            found += [run.info.run_id for run in page]
            if not (token := page.token or ""):
                return found

    def _delete_again(self, but: str) -> None:
        """The runs that came back with their experiment."""
        revived = files.read_json(self._revived)
        for run_id in revived if isinstance(revived, list) else ():
            if run_id == but:
                continue
            try:
                self.tracker.call("delete_run", run_id)
            except Refused as error:
                log.info("%s", error)  # somebody was quicker
        self._revived.unlink(missing_ok=True)


def experiment_name(source: Source, tracker: Tracker) -> str:
    """As the parameters say, else the name of the run's experiment folder."""
    told = source.config.get("mlflow_experiment_name")
    name = str(told or source.exp_name or Path(tracker.exp_root).name or "rankside")
    if tracker.absolute_names and not name.startswith("/"):
        name = f"/Shared/{name}"
    return _plain(name)


def run_name(source: Source) -> str:
    """As the parameters say, else who trains; an attempt beside a living one says so."""
    told = source.config.get("mlflow_run_name")
    name = str(told or "_".join(part for part in (source.team, source.user) if part) or source.exp_name)
    return _plain(f"{name} {source.beside}" if source.beside else name)


def _plain(name: str) -> str:
    return writable(name)[:_LONGEST_NAME]


def _order(run: Any) -> tuple[bool, str, str, str]:
    """Of several the one with points, else the one that was claimed first, else the oldest."""
    tags: Mapping[str, str] = run.data.tags
    return not run.data.metrics, tags.get(CLAIMED, "unclaimed"), tags.get(CREATED, ""), run.info.run_id
