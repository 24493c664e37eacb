"""MLflow's client, bounded: no call takes long, and every failure is one of few kinds.

Separate because this is the only file that knows MLflow's library: what it reads from the environment, and
which stores it has (what its many exceptions mean is in `mlflow_errors.py`). The library is imported when a
tracker is made, not before.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rankside.secrets import known_values, masked_text
from rankside_agent.sinks import answers, mlflow_database, mlflow_library, mlflow_plain_files, tracker_environ
from rankside_agent.sinks.mlflow_errors import Away, Refused, Unfit, sorted_out
from rankside_agent.sinks.mlflow_place import absolute_uri, database_file, folder_of, tracking_uri

log = logging.getLogger(__name__)

CALL_SECONDS = 10
UPLOAD_SECONDS = 120  # without a word; a server may hand a large file on before it answers
_LONGEST_TEXT = 500
_LONGEST_SECRET = 65_536

# The library asks the network on its own, prints, or waits for minutes, unless it is told not to.
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the forwarder tries again, and shows that it does
    "GIT_PYTHON_REFRESH": "quiet",
}
_AT_MOST = {"MLFLOW_HTTP_REQUEST_TIMEOUT": CALL_SECONDS, "MLFLOW_DATABRICKS_ENDPOINT_HTTP_RETRY_TIMEOUT": 30}
_SECRETS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "DATABRICKS_TOKEN")
_PREFIXES = ("MLFLOW_", "DATABRICKS_")

_SQL = re.compile(r"\(raised as a result of [^)]*\) | \[SQL: .*")  # SQLAlchemy quotes all values
_DATABASE = re.compile(r"(sqlite|mysql|postgresql|mssql)\b")
_DRIVERS = {  # module: what installs it
    "psycopg": "psycopg[binary]",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
    "pymysql": "pymysql",
    "pyodbc": "pyodbc",
    "pymssql": "pymssql",
}

_NO_FILES = (
    "{uri}: MLflow no longer writes runs to plain files; set MLFLOW_TRACKING_URI=sqlite:////path/mlflow.db, "
    "or unset it for {exp_root}/mlflow.db"
)
_NO_DATABASE = (
    "{uri}: a database store needs the full MLflow beside rankside, and this is mlflow-skinny: `pip install "
    "mlflow`, or set MLFLOW_TRACKING_URI to a server"
)


class Tracker:
    """The tracker of one run. Its calls raise `Away` or `Refused`, and nothing else."""

    def __init__(
        self,
        folder: Path,
        exp_root: str,
        environ: MutableMapping[str, str] = os.environ,
        installed: Callable[[str], object] = importlib.util.find_spec,
        cwd: str = "",
    ) -> None:
        """`folder` is the run's own, for the environment that its ranks told; `cwd` the training's.

        Raises Away, and NoFolder where `cwd` is needed and empty.
        """
        prepare(environ, folder, exp_root)
        self._secrets = known_values({name: environ[name] for name in environ if name.startswith(_PREFIXES)})
        told, folder_told = tracking_uri(environ, exp_root), folder_of(environ, cwd)
        self.uri = absolute_uri(told, folder_told, self._shown(told))
        self.base = folder_told if self.uri != told else ""  # what a relative address was relative to
        self.exp_root = exp_root
        self._remote = self.uri.startswith(("http:", "https:", "databricks"))
        self._client = self._connect(installed, folder / "sinks")
        self._files = None if self._remote else mlflow_plain_files.root_of(self._client)
        from mlflow.entities import Metric, Param, RunTag

        self._entities = {"metrics": Metric, "params": Param, "tags": RunTag}

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """A call of MlflowClient."""
        try:
            return getattr(self._client, method)(*arguments, **named)
        except Exception as error:  # noqa: BLE001  foreign code: its failures are sorted here
            raise self._sorted(error) from None

    def log_batch(self, run_id: str, kind: str, items: list[tuple[Any, ...]]) -> None:
        """Metrics (key, value, ms, step), params or tags (key, value), in one request."""
        make = self._entities[kind]
        self.call("log_batch", run_id, **{kind: [make(*item) for item in items]})

    def misfits(self, run_id: str, kind: str, names: Iterable[str]) -> dict[str, str]:
        """Names that this store cannot hold, and why; to be asked before each request."""
        return mlflow_plain_files.misfits(self._files, run_id, kind, names) if self._files else {}

    def upload(self, artifact_uri: str, path: Path, destination: str) -> None:
        """Put a file; may take long. Raises also Unfit, where the file cannot be read."""
        try:
            self._upload(self._local(artifact_uri), path, destination)
        except (FileNotFoundError, PermissionError) as error:
            if error.filename == str(path):
                raise Unfit(str(error)) from None
            raise self._sorted(error) from None
        except Exception as error:  # noqa: BLE001  as in `call`
            raise self._sorted(error) from None

    @property
    def artifact_location(self) -> str | None:
        """Where a new experiment's artifacts are to lie; the server's own choice where there is one."""
        if self._remote or not _DATABASE.match(self.uri):
            return None
        return (Path(self.exp_root).absolute() / "mlartifacts").as_uri()

    @property
    def absolute_names(self) -> bool:
        """Whether experiments are named by a path in a workspace."""
        return self.uri.startswith("databricks")

    def _connect(self, installed: Callable[[str], object], folder: Path) -> Any:
        known = {"uri": self._shown(self.uri), "exp_root": self.exp_root}
        database = _DATABASE.match(self.uri)
        if database and not installed("alembic"):
            raise Away(_NO_DATABASE.format(**known))
        try:
            mlflow_library.load()
            from mlflow import MlflowClient

            if self.uri.startswith("sqlite:"):
                Path(self.exp_root).mkdir(parents=True, exist_ok=True)
            if self._remote:
                answers.watch_mlflow()
            if database:
                _try_once()
                return self._database_client(MlflowClient, folder)
            return MlflowClient(tracking_uri=self.uri)
        except ImportError as error:
            raise Away(self._no_library(error, bool(database))) from None
        except Exception as error:  # noqa: BLE001  as in `call`
            if ":" not in self.uri or self.uri.startswith("file:"):
                raise Away(_NO_FILES.format(**known)) from None
            raise Away(f"{known['uri']}: {self._sorted(error)}") from None

    def _database_client(self, make: Callable[..., Any], folder: Path) -> Any:
        file = database_file(self.uri)
        if file is not None and mlflow_database.is_gone(file):
            log.warning("%s was deleted or replaced: the points that it held are gone", file)
            mlflow_database.forget(self.uri)
        mlflow_database.make(self.uri, folder, lambda uri: make(tracking_uri=uri))
        client = make(tracking_uri=self.uri)
        if file is not None:
            mlflow_database.connected(file)
        return client

    def _no_library(self, error: ImportError, database: bool) -> str:
        if database and error.name and error.name.partition(".")[0] in _DRIVERS:
            driver = _DRIVERS[error.name.partition(".")[0]]
            return f"{self._shown(self.uri)}: its driver is not there beside rankside: `pip install {driver}`"
        return f"MLflow's client cannot be imported: {error}; `pip install mlflow-skinny`"

    def _upload(self, artifact_uri: str, path: Path, destination: str) -> None:
        from mlflow.store.artifact.http_artifact_repo import HttpArtifactRepository

        repository = self._repository(artifact_uri)
        if not isinstance(repository, HttpArtifactRepository):
            folder, _, name = destination.rpartition("/")
            with _named(path, name) as named:
                repository.log_artifact(str(named), folder or None)
            return
        # As the repository does, but with a time limit of its own, and names that are no URL are quoted
        rest: Any = importlib.import_module("mlflow.utils.rest_utils")
        with path.open("rb") as file:
            data = file if path.stat().st_size else b""
            creds, where = repository._host_creds, f"/{quote(destination)}"
            answer = rest.http_request(creds, where, "PUT", data=data, timeout=UPLOAD_SECONDS)
            rest.augmented_raise_for_status(answer)

    def _local(self, uri: str) -> str:
        """A relative path, which an experiment of others may have, is not one of this process's folder."""
        if ":" in uri or Path(uri).is_absolute():
            return uri
        return str(Path(self.base or self.exp_root) / uri)

    def _repository(self, artifact_uri: str) -> Any:
        registry: Any = importlib.import_module("mlflow.store.artifact.artifact_repository_registry")
        try:
            return registry.get_artifact_repository(artifact_uri, tracking_uri=self.uri)
        except TypeError:  # before 3.2: from the environment, where it was found
            return registry.get_artifact_repository(artifact_uri)

    def _sorted(self, error: Exception) -> Exception:
        return sorted_out(error, self._shown(error), self._remote)

    def _shown(self, text: object) -> str:
        """Fit to be shown: in one line, of bounded length, without what is secret."""
        plain = _SQL.sub("", " ".join(str(text).split()))
        return masked_text(plain, self._secrets)[:_LONGEST_TEXT]


def prepare(environ: MutableMapping[str, str], folder: Path, exp_root: str) -> None:
    """Set what the library reads at each request; also what has changed since the last time."""
    told = tracker_environ.load(folder)
    environ.update({name: value for name, value in told.items() if name.startswith(_PREFIXES)})
    environ.update(_QUIET)
    for name, most in _AT_MOST.items():
        wished = environ.get(name, "")
        if not (wished.isdecimal() and 0 < int(wished) <= most):
            environ[name] = str(most)
    for name in _SECRETS:
        _read_secret(environ, name, exp_root if name in told else None)


def _try_once() -> None:
    """MLflow tries a database that cannot be opened ten times, in 100 s; the forwarder does, and says so."""
    database: Any = importlib.import_module("mlflow.store.db.utils")
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # pages of SQL for each failure
    if hasattr(database, "MAX_RETRY_COUNT"):
        database.MAX_RETRY_COUNT = 1


@contextmanager
def verdicts() -> Iterator[None]:
    """What is refused where nothing can be left out (the run itself, say) is waited for as well."""
    try:
        yield
    except Refused as refusal:
        raise Away(f"refused: {refusal}") from None


_read: dict[str, tuple[str, str]] = {}  # by variable: the file, and its content that replaced its name


def _read_secret(environ: MutableMapping[str, str], name: str, stranger: str | None) -> None:
    """`@/path` means the content of that file, read anew at each opening of the sink.

    A rank that named it (its exp_root is `stranger`) gets its own files read, not whatever an agent that is
    root can read.
    """
    value = environ.get(name, "")
    path, content = _read.get(name, ("", ""))
    if value.startswith("@/"):
        path = value[1:]
    elif value != content:  # somebody has set another meanwhile
        path = ""
    if not path:
        return
    try:
        with open(path, encoding="utf-8") as file:
            if stranger is not None and not may_read(os.fstat(file.fileno()), stranger):
                raise PermissionError(f"{path} is not the training's")
            environ[name] = file.read(_LONGEST_SECRET).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Away(f"{name}: {error}") from None
    _read[name] = path, environ[name]


def may_read(found: os.stat_result, exp_root: str) -> bool:
    """Whether a file that a training named is one that its user could read as well."""
    if os.geteuid() != 0 or found.st_mode & 0o004:
        return True
    return found.st_uid == os.stat(exp_root).st_uid


@contextmanager
def _named(path: Path, name: str) -> Iterator[Path]:
    """The file under another name, by a link: some repositories take the name from the file."""
    if path.name == name:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="rankside-") as folder:
        link = Path(folder) / name
        link.symlink_to(path)
        yield link
