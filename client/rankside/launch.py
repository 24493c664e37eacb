"""How this process was started, for the trackers: its command line, folder and environment.

Separate because there are two kinds of it that must not be mixed up. `launch` is shown to people, and nothing
secret is in it. `tracker_environ` holds the secrets that a tracker asks for, in the agent as in the training:
it goes to the agent only, and neither into journals nor files that others read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rankside import particulars, record, secrets

LONGEST = 4096  # bytes of one value that people are shown
MOST = 256 << 10  # bytes of all together
_LONGEST_SECRET = 32 << 10  # bytes of a tracker's variable; a longer one is no setting

# By the parameters that turn a tracker on, and the value they then have: whose variables it reads. No clouds'
# keys (AWS_, AZURE_, GOOGLE_): those open far more than a tracker; an agent that stores there has its own.
_TRACKERS: tuple[tuple[str, bool, tuple[str, ...]], ...] = (
    ("disable_wandb", False, ("WANDB_",)),
    ("metrics.enable_wandb", True, ("WANDB_",)),
    ("disable_mlflow", False, ("MLFLOW_", "DATABRICKS_")),
)
_PREFIXES = tuple(sorted({prefix for *_, prefixes in _TRACKERS for prefix in prefixes}))
# They name a run or a process around this one: a tracker would go on there instead of in the run's own.
_OF_OTHERS = frozenset(
    (
        *("WANDB_SERVICE", "WANDB_SERVICE_TRANSPORT", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_RUN_DIR"),
        *("WANDB_RUN_STORAGE_ID", "WANDB_SWEEP_ID", "WANDB_SWEEP_PARAM_PATH", "WANDB_INITED"),
        *("WANDB_LAUNCH_TRACE_ID", "WANDB_X_EXECUTABLE", "WANDB__EXECUTABLE", "MLFLOW_RUN_ID"),
    )
)


def launch(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """{"argv", "cwd", "environ"} without secrets, of bounded size, every text one that can be encoded."""
    known = secrets.known_values(environ)
    words = secrets.masked_argv(map(str, sys.argv if argv is None else argv), known)
    variables = secrets.safe_environ(environ)
    return {
        "argv": _bounded_list(words),
        "cwd": _shown(secrets.masked_text(_cwd(), known)),
        "environ": _bounded(variables),
    }


def tracker_environ(config: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of the trackers that `config` turns on, with their secrets."""
    prefixes = prefixes_of(config)
    found: dict[str, str] = {}
    left = MOST
    for name, value in environ.items():
        if prefixes and name.startswith(prefixes) and is_of_tracker(name) and is_portable(name, value):
            left -= _size({name: value})
            if left < 0:
                break
            found[name] = value
    return found


def prefixes_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """How the variables of the trackers that `config` turns on begin."""
    return tuple({each for name, on, given in _TRACKERS if config.get(name) is on for each in given})


def checked_launch(value: Mapping[Any, Any]) -> dict[str, Any]:
    """A stranger's: what `launch` and `particulars.tell` give, and nothing else. Raises ValueError."""
    argv, cwd, variables = value.get("argv", []), value.get("cwd", ""), value.get("environ", {})
    if not isinstance(argv, list) or not isinstance(variables, dict):
        raise ValueError("hello: launch: argv is no list, or environ no mapping")
    texts = [cwd, *argv, *variables, *variables.values()]
    if not all(isinstance(text, str) and len(text) <= 2 * LONGEST and "\0" not in text for text in texts):
        raise ValueError("hello: launch: holds what is no text, a NUL, or a text that is too long")
    if sum(map(len, texts)) > MOST:
        raise ValueError(f"hello: launch: holds more than {MOST} characters")
    told = particulars.checked(value)
    return {"argv": argv, "cwd": cwd, "environ": variables, **told} if value else {}


def checked_environ(value: Mapping[Any, Any]) -> dict[str, str]:
    """A stranger's: variables of trackers only, for with others a process can be made to do anything."""
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ValueError("hello: environ: holds what is no text")
        if not is_of_tracker(name) or not is_portable(name, text):
            raise ValueError(
                f"hello: environ: {name[:100]!r} is no tracker's variable, or its value too long"
            )
    if _size(value) > MOST:
        raise ValueError(f"hello: environ: holds more than {MOST} bytes")
    return dict(value)


def is_of_tracker(name: str) -> bool:
    """Whether a variable may reach a tracker's process at all: others could make it run anything."""
    return name.startswith(_PREFIXES) and name not in _OF_OTHERS


def is_portable(name: str, value: str) -> bool:
    """Whether the operating system takes it as a variable, and it is no more than a setting."""
    try:
        size = len(os.fsencode(value))
        return (
            size <= _LONGEST_SECRET and name.isascii() and not {"\0", "="} & set(name) and "\0" not in value
        )
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return False


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:  # removed meanwhile
        return ""


def _shown(text: str) -> str:
    plain = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    return record.cut(plain, LONGEST)


def _bounded_list(words: list[str]) -> list[str]:
    kept: list[str] = []
    left = MOST // 2
    for word in map(_shown, words):
        left -= len(word.encode())
        if left < 0:
            return [*kept, f"[rankside: cut here, {len(words)} arguments in all]"]
        kept.append(word)
    return kept


def _bounded(variables: Mapping[str, str]) -> dict[str, str]:
    kept: dict[str, str] = {}
    left = MOST // 2 - 2 * LONGEST  # for the folder, and for what says that something is missing
    for name, value in variables.items():
        shown = {_shown(name): _shown(value)}
        left -= _size(shown)
        if left < 0:
            kept["RANKSIDE_LEFT_OUT"] = f"{len(variables) - len(kept)} variables: more than {MOST} bytes"
            return kept
        kept.update(shown)
    return kept


def _size(variables: Mapping[str, str]) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for pair in variables.items() for text in pair)
