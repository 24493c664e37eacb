"""One run at the W&B server, through W&B's own client: opened, written, seen to have arrived, left.

Separate because here every call may hang or lie. Each has a deadline in a thread of its own; `log` returns
long before anything has arrived, so `confirm` asks the server; and to leave, the client's helper process is
killed, which takes no time and loses nothing, as all that is not confirmed still lies in the journal.
"""

from __future__ import annotations

import glob
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rankside.secrets import masked_text
from rankside_agent.sinks import wandb_names, wandb_server
from rankside_agent.sinks.wandb_records import Identity, plain
from rankside_agent.sinks.wandb_rows import STEP, Row
from rankside_agent.sinks.wandb_server import Away, Held, Login

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)

INIT_SECONDS = 20.0
CONFIRM_SECONDS = 25.0  # since the server last took something
LONGEST_CONFIRM = 45.0
FINISH_SECONDS = 20.0
END_SECONDS = 5.0  # until the server shows what it was told
LEAVE_SECONDS = 3.0
FIRST_POLL, LONGEST_POLL = 0.7, 3.0
_GONE = ("previously created and deleted", "409")

_T = TypeVar("_T")


class Gone(Exception):
    """The run was deleted at the server, which will never take its id again."""


class OnlineRun:
    """A run that the server takes rows for. Everything raises Away when it does not."""

    def __init__(self, login: Login, identity: Identity, work: Path) -> None:
        """Opens it. `work` is a folder for W&B's own files, and is emptied. Raises Gone, too."""
        self._login = login
        self.identity = identity
        self.held = wandb_server.held(login, identity.entity, identity.project, identity.id)
        self.last = self.held.last  # the newest row that is on its way
        self._version = _version(self.held)
        self._uploads: dict[str, int] = {}
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True, exist_ok=True)
        self._run = self._opened(work)

    @property
    def version(self) -> Any:
        """Of the parameters that the server has, or is about to have."""
        return self._version

    @property
    def url(self) -> str:
        """For people."""
        return masked_text(str(self._run.url or ""))

    def send(self, rows: Iterable[Row]) -> None:
        """Write rows; those that the server has are left out."""
        with _client():
            for row in rows:
                if row.number > self.last:
                    self._run.log(dict(row.values), step=row.number, commit=True)
                    self.last = row.number

    def configure(self, values: Mapping[str, Any], version: int) -> None:
        """Write parameters."""
        with _client():
            self._run.config.update(plain(dict(values)), allow_val_change=True)
        self._version = version

    def save(self, path: Path, name: str) -> None:
        """Upload a file."""
        base = Path(self._run.dir).parent / "from"
        link = base / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        with _client():
            self._run.save(glob.escape(str(link)), base_path=str(base), policy="now")
        self._uploads[name] = path.stat().st_size

    def confirm(self) -> None:
        """Wait until the server has all rows; as long as it takes, while it takes some.

        Parameters are not waited for, as the client sends them only every 5 seconds: whoever opens the run
        next compares their version.
        """
        began = moved = time.monotonic()
        pause = FIRST_POLL
        while self.held.last < self.last:
            if time.monotonic() - moved > CONFIRM_SECONDS or time.monotonic() - began > LONGEST_CONFIRM:
                raise Away(f"{self._login.base_url} has not taken {self.last - self.held.last} rows yet")
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST_POLL)
            before, self.held = self.held, self._ask()
            if self.held.last != before.last:
                moved = time.monotonic()

    def unsent(self) -> list[str]:
        """Files that have not arrived so far."""
        if self._uploads:
            self.held = self._ask()
        there = self._uploads if self.held.files is None else self.held.files
        self._uploads = {name: size for name, size in self._uploads.items() if there.get(name) != size}
        return list(self._uploads)

    def alone(self) -> bool:
        """Whether the newest row at the server is ours."""
        self.held = self._ask()
        return self.held.last <= self.last

    def leave_open(self) -> None:
        """Let go of the run, which goes on; a second client of this process would overwrite its rows."""
        bounded("finish", FINISH_SECONDS + 5, self._run.finish)

    def finish(self, exit_code: int, status: str) -> None:
        """Tell the server how it ended, and see that it has everything."""

        def finish() -> None:
            self._run.summary["rankside.status"] = status
            self._run.finish(exit_code=exit_code)

        bounded("finish", FINISH_SECONDS + 5, finish)
        deadline = time.monotonic() + END_SECONDS
        while not self._ended():
            if time.monotonic() > deadline:
                raise Away(f"{self._login.base_url} does not know of the run's end yet")
            time.sleep(FIRST_POLL)

    def _ended(self) -> bool:
        self.held = self._ask()
        arrived = self.held.last >= self.last and _version(self.held) == self._version
        return arrived and self.held.state != "running"

    def _ask(self) -> Held:
        identity = self.identity
        return wandb_server.held(self._login, str(self._run.entity or ""), identity.project, identity.id)

    def _opened(self, work: Path) -> wandb.Run:
        import wandb

        identity = self.identity

        def init() -> wandb.Run:
            settings = wandb.Settings(
                api_key=self._login.key,
                base_url=self._login.base_url,
                console="off",
                silent=True,
                disable_code=True,
                disable_git=True,
                x_disable_stats=True,
                x_disable_meta=True,
                x_disable_machine_info=True,
                x_save_requirements=False,
                x_skip_transaction_log=True,  # the journal has all that the server does not have yet
                x_file_stream_transmit_interval=1,  # a flush waits for it; below 1 it would be 15
                init_timeout=INIT_SECONDS,
                finish_timeout=FINISH_SECONDS,
            )
            run = wandb.init(
                project=identity.project,
                entity=identity.entity or None,
                id=identity.id,
                name=identity.name,
                resume="allow",
                mode="online",
                dir=str(work),
                reinit="create_new",
                settings=settings,
            )
            run.define_metric(STEP)
            run.define_metric("*", step_metric=STEP)
            return run

        try:
            return bounded("init", INIT_SECONDS + 10, init)
        except Away:
            raise
        except Exception as error:  # noqa: BLE001  W&B's client is foreign code
            text = wandb_names.reason(error)
            if any(each in text for each in _GONE):
                raise Gone(masked_text(text)) from None
            raise Away(f"W&B's client cannot open the run: {text}") from None
        finally:
            os.environ.pop("WANDB_SERVICE", None)  # it would lead our children to our helper process


@contextmanager
def _client() -> Iterator[None]:
    """W&B's client is foreign code: whatever it raises, the rows go another way."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  the reason may quote the server's address: only its text goes on
        raise Away(f"W&B's client failed: {type(error).__name__}: {error}") from None


def leave() -> None:
    """Let go of W&B's client: its helper process is killed, all runs of this process with it."""
    if "wandb" not in sys.modules:
        return
    import psutil
    import wandb

    threading.excepthook = _quiet
    for child in psutil.Process().children(recursive=True):
        try:
            if child.name().startswith("wandb-core"):
                child.kill()
                child.wait(LEAVE_SECONDS)
        except psutil.Error as error:  # it may have gone just now
            log.info("wandb-core: %s", error)

    def teardown() -> None:
        try:
            wandb.teardown()
        except (Exception, SystemExit) as error:  # noqa: BLE001  it complains of what was just killed
            log.debug("teardown: %s", error)

    try:
        bounded("teardown", LEAVE_SECONDS, teardown)
    except Away as error:
        log.warning("%s", error)


def _quiet(failed: threading.ExceptHookArgs) -> None:
    """The client's threads complain, too, seconds later, of the helper that was killed."""
    if (failed.exc_type.__module__ or "").startswith("wandb."):
        log.debug("%s: %s", failed.thread and failed.thread.name, failed.exc_value)
    else:
        threading.__excepthook__(failed)


def _version(held: Held) -> Any:
    return (held.config.get("rankside") or {}).get("update")


def bounded(what: str, seconds: float, call: Callable[[], _T]) -> _T:
    """The call's result; Away when it takes longer. It then stays behind in its thread."""
    done: list[_T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            done.append(call())
        except BaseException as error:  # noqa: BLE001  raised again by who waits
            failed.append(error)

    thread = threading.Thread(target=work, name=f"rankside-wandb-{what}", daemon=True)
    thread.start()
    thread.join(seconds)
    if done:
        return done[0]
    if failed:
        if isinstance(failed[0], Exception):
            raise failed[0]
        raise Away(f"W&B's client gave up in {what}: {failed[0]!r}")
    raise Away(f"W&B's client did not return from {what} within {seconds:.0f} s")
