"""`rankside demo`: train a small GPT here under a real agent, show its log live, and check the result."""

from __future__ import annotations

import fcntl
import shlex
import shutil
import signal
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankside.endpoint import listens
from rankside.identity import host, safe_name
from rankside.place import find_place
from rankside_agent.commands import fail
from rankside_agent.demo.trackers import TRACKERS

if TYPE_CHECKING:
    from rankside_agent.demo.check import Finding
    from rankside_agent.demo.stage import Stage

NEEDED = ("torch", "numpy", "loguru")  # and what the chosen trackers need
EXPERIMENT = "demo"
_STANDSTILL = 120.0  # seconds without a line in any log; importing torch may take a minute on a busy machine
_START = 30.0  # seconds for the agent to listen; it takes one on a quiet machine
_DELIVERY = (
    120.0  # seconds for files and trackers to catch up with a run that ended; MLflow's store takes some
)
_SHOWING = 1.0  # seconds for the tail to show what is in the files


def demo(
    folder: Annotated[
        str, typer.Option("--dir", help="For all files [default: rankside-demo]. Again there: attempt 2.")
    ] = "",
    ranks: Annotated[int, typer.Option(min=1, max=16, help="Processes that train.")] = 4,
    steps: Annotated[int, typer.Option(min=10, max=100_000, help="Training steps.")] = 800,
    trackers: Annotated[
        str, typer.Option(metavar="NAME,...", help=f"Of: {', '.join(TRACKERS)}.")
    ] = "tensorboard",
    keep: Annotated[
        bool, typer.Option(help="Without, files go to a temporary folder, removed if all is well.")
    ] = True,
) -> None:
    """Train a small GPT on this machine's CPUs, watched by rankside, and check all that was written.

    Takes about a minute. Everything stays on this machine: MLflow writes to a database of the run's, W&B to
    offline files, whatever your environment says. Exit status 1 where anything is missing.

    Example: rankside demo --ranks 2 --steps 100 --trackers tensorboard,mlflow
    """
    chosen = _chosen(trackers)
    needed = [*NEEDED, *(name for tracker in chosen for name in TRACKERS[tracker].packages)]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        fail(_how_to_install(missing), 2)
    if folder and not keep:
        fail("--no-keep uses a folder of its own and cannot go with --dir", 2)
    path = Path(folder or "rankside-demo").absolute() if keep else Path(tempfile.mkdtemp(prefix="rankside-"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a script's background ignores SIGINT
        signal.signal(number, _leave)
    try:
        findings = _perform(path, ranks, steps, chosen)
    except KeyboardInterrupt:
        fail("demo: stopped; nothing is left running", 130)
    bad = any(finding.problem for finding in findings)
    _tell(path, findings, chosen, with_places=keep or bad)
    if not keep and not bad:
        shutil.rmtree(path, ignore_errors=True)
    raise typer.Exit(bad)


def _chosen(trackers: str) -> list[str]:
    names = list(dict.fromkeys(name for name in trackers.replace(" ", "").split(",") if name))
    for name in names:
        if name not in TRACKERS:
            fail(f"demo: --trackers: unknown {name!r}; known: {', '.join(TRACKERS)}", 2)
    return names


def _how_to_install(missing: list[str]) -> str:
    return (
        f"demo: {', '.join(missing)} not installed: pip install 'rankside[demo]' "
        "(on a machine without GPUs with -c constraints.txt, which pins torch==2.13.0, a CPU build)"
    )


def _leave(number: int, frame: object) -> None:
    """SIGTERM and SIGHUP as Ctrl-C, so that every process is ended on the way out."""
    raise KeyboardInterrupt


def _perform(path: Path, ranks: int, steps: int, trackers: list[str]) -> list[Finding]:
    """Agent, tail and training, until all is delivered; then the check."""
    from rankside_agent.demo.account import load_all
    from rankside_agent.demo.check import check, records_before
    from rankside_agent.demo.stage import Stage, StageError

    root, accounts = _exp_root(path), path / "accounts"
    with _alone(path):
        root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(accounts, ignore_errors=True)  # those of the attempt before would be taken for ours
        before = records_before(root)
        if before:
            _say(f"{_short(root)} is there already: this is the next attempt of the same run")
        try:
            with Stage(path) as stage:
                _train(stage, ranks, steps, accounts, trackers)
        except StageError as error:
            fail(f"demo: {error}", 1)
        return check(load_all(accounts), ranks, before, trackers)


def _train(stage: Stage, ranks: int, steps: int, accounts: Path, trackers: list[str]) -> None:
    root = str(_exp_root(stage.folder))
    _say(f"starting an agent on {stage.endpoint}")
    stage.start("agent", "rankside_agent", "agent")
    stage.wait("the agent does not listen", lambda: listens(stage.endpoint), _START)
    _say(f"starting {steps} steps of training on {ranks} ranks, and `rankside tail -f {_short(root)}`:")
    stage.start("tail", "rankside_agent", "tail", "-f", "-n", "0", "--level", "INFO", root, shown=True)
    witness = ("-m", "rankside_agent.demo.witness", str(accounts))
    example = (f"--steps={steps}", f"--exp-name={EXPERIMENT}", f"--workspace={stage.folder}")
    launcher = ("torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    stage.start("training", *launcher, *witness, *example, "--trackers", *trackers)
    stage.wait("the training stands still", lambda: stage.ended("training") is not None, _STANDSTILL)
    stage.must_have_succeeded("training")
    stage.wait("the agent does not finish the run", lambda: any(stage.state.glob("done/*")), _DELIVERY)
    time.sleep(_SHOWING)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two demos in one folder would each count the other's lines."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = open(path / ".lock", "w", encoding="utf-8")  # noqa: SIM115  open for as long as the demo runs
    except OSError as error:
        fail(f"demo: {path} cannot be used, name another folder with --dir: {error.strerror}", 2)
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(f"demo: another demo runs in {path}; wait for it, or name another folder with --dir", 2)
        yield


def _exp_root(path: Path) -> Path:
    return Path(find_place(EXPERIMENT, None, path, None, None, {}).exp_root)


def _tell(path: Path, findings: list[Finding], trackers: list[str], with_places: bool) -> None:
    """The check as a table, then where things are and how to look at them."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("checked", "the ranks say", "the files hold"):
        table.add_column(heading, no_wrap=True)
    for finding in findings:
        verdict = Text(f"FAILED {finding.problem}", "bold red") if finding.problem else Text("ok", "green")
        table.add_row(Text(finding.what), finding.said, finding.found, verdict)
    console = Console(highlight=False)
    console.print()
    console.print(table)
    console.print()
    for line in _places(path, trackers) if with_places else ():
        console.print(Text(line), soft_wrap=True)


def _places(path: Path, trackers: list[str]) -> Iterator[str]:
    root = _exp_root(path)
    names = {"root": _short(root), "url": shlex.quote(str(root))}
    logs = next(iter(sorted(root.glob("logs/*/node-*.log"))), root / "logs").parent
    node = logs / f"node-{safe_name(host())}.log"
    yield f"each rank's files    {_short(logs)}/rank-*/"
    yield f"all ranks in one     {_short(node)}"
    for tracker in trackers:
        yield f"{TRACKERS[tracker].title:<20} {TRACKERS[tracker].files.format(**names)}"
    yield f"agent and torchrun   {_short(path / 'agent.log')}, {_short(path / 'training.log')}"
    yield ""
    if shutil.which("rankside") is None:
        yield f"export PATH={shlex.quote(sysconfig.get_path('scripts'))}:$PATH"
    yield f"rankside tail --level WARNING {_short(root)}"
    yield f"tail -F {_short(node)}"
    for tracker in trackers:
        yield TRACKERS[tracker].command.format(**names)


def _short(path: str | Path) -> str:
    """Relative to where the user stands, quoted for a shell."""
    path, here = Path(path), Path.cwd()
    return shlex.quote(str(path.relative_to(here) if here in path.parents else path))


def _say(text: str) -> None:
    typer.echo(f"rankside demo: {text}")
