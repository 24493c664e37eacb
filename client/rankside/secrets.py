"""Mask what is secret before anybody else sees it: in texts, parameters, command lines, environments.

Separate because all of these must agree. A name decides where there is one (`secret_names`); what looks like
a secret, or is the value of a secret variable, is masked under any name. In doubt it is masked. A text may be
a megabyte: each pattern here is linear in it, or bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankside.secret_names import is_password, secret_parameter, secret_variable, words_in

MASK = "***"
_SHORTEST = 8  # characters of a secret variable's value that is looked for elsewhere; shorter ones are words

# -- texts ---------------------------------------------------------------------------------------------

_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{30,}|api_org_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|github_pat_\w{20,}|glpat-[\w-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}|sk[-_][\w-]{20,}|xox[abeprs]-[\w-]{10,}"
    r"|xapp-[\w-]{10,}|AIza[\w-]{35}|ya29\.[\w-]{20,}|dapi[0-9a-f]{32}|npm_[A-Za-z0-9]{36}|pypi-[\w-]{40,}"
    r"|nvapi-[\w-]{20,}|gsk_[A-Za-z0-9]{40,}|r8_[A-Za-z0-9]{30,}|wandb_v\d_\w{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:(?!-----END).)*(?:-----END[A-Z ]{0,40}-----)?"
    r"|(?<=hooks\.slack\.com/)services/[\w/]+",
    re.DOTALL,
)
# Up to the @ of a URL. A password may hold a slash that nobody quoted, but digits after the colon are a port.
_URL = re.compile(
    r"""(?:(?<=:)//[^\s/?#"'<>]*|//[^\s/?#@:"'<>]*:(?!\d{1,5}(?:[/?#\s]|$))[^\s@"'<>]{0,300})@"""
)
_LOGIN = re.compile(r"(?!mailto:)[^\s/@:]+:(?!//)[^\s@]+@[\w.\-\[\]]+(?::\d+)?(?:[/?].*)?", re.IGNORECASE)
_HEADER = re.compile(
    r"""(?i)(\bbearer\s{1,3}|\bauthorization["']?\s{0,3}[:=]\s{0,3}["']?\w{1,20}\s{1,3})[^\s"',;]{4,}"""
)
# From the word that tells on: a search for whole names would begin anew at each letter of a long text
_NAMED = re.compile(
    r"""(?ix)
    (?:key|token|secret|passw|passphrase|passcode|pass|pwd|credential|creds?|auth|cookie|webhook|pat|jwt|sas
      |dsn|connection.?string|sig|signature)
    [\w.\-]{0,40}
    (?P<between> \\{0,2}["']?\]?\s{0,3}(?:=>|[:=])\s{0,3} | \s{1,3}(?!-))
    """
)
_VALUE = re.compile(
    r"""\\"(?:(?!\\").)*(?:\\")?|"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|\[[^\]]*\]?|\{[^}]*\}?"""
    r"""|[^\s&,;"'}\])]+""",
    re.DOTALL,
)
_NAME = re.compile(r"[\w.\-]*\Z")
_PROSE = ("key", "token", "pass", "auth", "pat")  # alone and before a colon
_SIGNATURES = ("sig", "signature", "x-amz-signature", "x-goog-signature")
_NUMBER = re.compile(r"[-+]?[\d._]+(?:e[-+]?\d+)?|true|false|none|null", re.IGNORECASE)


def masked_text(text: str, known: Sequence[str] = ()) -> str:
    """`text` without credentials in URLs, values of secret names, well-known tokens, and `known` values."""
    for value in known:
        if value in text:
            text = text.replace(value, MASK)
    if text.startswith(("{", "[")) and text.endswith(("}", "]")):
        as_json = _masked_json(text)
        if as_json is not None:
            return as_json
    if len(text) >= 12:
        text = _SHAPES.sub(MASK, text)
    if "@" in text:
        text = _URL.sub(f"//{MASK}@", text)
        if _LOGIN.fullmatch(text):
            text = f"{MASK}@{text.rpartition('@')[2]}"
    if " " in text:
        text = _HEADER.sub(rf"\g<1>{MASK}", text)
    if "=" in text or ":" in text or "--" in text:
        text = _without_assigned(text)
    return text


def masked_plain(text: str, known: Sequence[str] = ()) -> str:
    """Sentences of ours, in which file names and parameters stand before colons: without what is a secret
    by its form or is one of the `known`, and whatever stands behind `token:` stays."""
    for value in known:
        text = text.replace(value, MASK)
    return _URL.sub(f"//{MASK}@", _SHAPES.sub(MASK, text))


def _masked_json(text: str) -> str | None:
    """None where it is no JSON; its own spelling stays where nothing was masked."""
    import json

    try:
        parsed = json.loads(text)
        masked = masked_params(parsed)
        return text if masked == parsed else json.dumps(masked)
    except (ValueError, RecursionError):
        return None


def _without_assigned(text: str) -> str:
    """`name=value`, `"name": "value"` and `--name value`, where the name is a secret's."""
    parts: list[str] = []
    done = at = 0
    while found := _NAMED.search(text, at):
        at = found.end()
        name, between = _name_before(text, found.start("between")), found["between"]
        value = _VALUE.match(text, at) if _tells(name, between, text[at : at + 1]) else None
        if value is not None and not _says_nothing(name, value[0]):
            quote = next((each for each in ('\\"', '"', "'") if value[0].startswith(each)), "")
            parts.append(f"{text[done:at]}{quote}{MASK}{quote}")
            done = at = value.end()
    return "".join((*parts, text[done:]))


def _tells(name: str, between: str, first: str) -> bool:
    """Whether what follows this name, and what lies between, is a secret."""
    plain = name.lstrip("-").lower()
    if not between.strip() and not name.startswith("--"):
        return False
    if ":" in between and plain in _PROSE and between[0] not in "\\\"'" and first not in ("'", '"'):
        return False
    return plain in _SIGNATURES or secret_parameter(name.lstrip("-"))


def _name_before(text: str, end: int) -> str:
    found = _NAME.search(text, max(0, end - 100), end)
    return found[0] if found else ""


def _says_nothing(name: str, value: str) -> bool:
    """A number or a flag is no secret; but as a password, a number may be one."""
    return not value or (bool(_NUMBER.fullmatch(value.strip("\"'"))) and not _is_pin(name, value))


def _is_pin(name: str, value: Any) -> bool:
    return sum(char.isdigit() for char in str(value)) >= 4 and is_password(name)


# -- environments --------------------------------------------------------------------------------------

_PLACES = re.compile(r"(?:~|/(?:usr|home|root|etc|var|tmp|run|opt|mnt|data|dev|scratch|lustre|nfs|work\w*))/")


def known_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What secret variables and URLs hold, the longest first: to be found wherever else it stands."""
    from urllib.parse import quote

    found = {value.strip() for name, value in environ.items() if _holds_secret(name, value)}
    for value in environ.values():
        if "@" in value and "://" in value:
            found |= {match[1] for match in re.finditer(r"://[^\s/@:]*:([^\s/]+)@", value)}
    found = {value for value in found if len(value) >= _SHORTEST}
    found |= {quote(value, safe="", errors="replace") for value in found}
    return tuple(sorted(found, key=len, reverse=True))


def _holds_secret(name: str, value: str) -> bool:
    """Where a secret lies is none, and would be found in half of an environment."""
    place = name.upper().endswith(("_FILE", "_PATH", "_DIR", "_SOCK", "_HOME")) or _PLACES.match(value)
    return secret_variable(name) and not place


def safe_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Without the variables whose name is secret, and without what the others hold of secrets."""
    known = known_values(environ)
    return {name: masked_text(value, known) for name, value in environ.items() if not secret_variable(name)}


# -- parameters ----------------------------------------------------------------------------------------

_PLAIN = frozenset((int, float, bool, type(None)))
_NAMING = ("name", "key", "variable", "Name", "Key")


def masked_params(value: Any, known: Sequence[str] = ()) -> Any:
    """Plain values (dicts, lists, texts, numbers) with what is secret masked, at any depth."""
    kind = type(value)
    if kind is str:
        return masked_text(value, known)
    if kind is dict:
        return _masked_mapping(value, known)
    if kind is list:
        return _masked_list(value, known)
    return value


def _masked_mapping(values: dict[Any, Any], known: Sequence[str]) -> dict[Any, Any]:
    masked: dict[Any, Any] = {}
    named = next((values[each] for each in _NAMING if isinstance(values.get(each), str)), "")
    for key, item in values.items():
        if not isinstance(key, str):
            masked[key] = masked_params(item, known)
            continue
        told = named if key in ("value", "Value") and secret_parameter(named) else key
        plain = _hidden(told, item) if secret_parameter(told) else masked_params(item, known)
        masked[masked_text(key, known)] = plain
    return masked


def _masked_list(values: list[Any], known: Sequence[str]) -> list[Any]:
    if values and all(type(item) is str for item in values):
        if any(item.startswith("-") for item in values):
            return masked_argv(values, known)
        if len(values) == 2 and words_in(values[0]) > 1 and secret_parameter(values[0]):
            return [values[0], _hidden(*values)]  # an item of a mapping
    return [item if type(item) in _PLAIN else masked_params(item, known) for item in values]


def _hidden(name: str, value: Any) -> Any:
    """All that stands under a secret name; numbers, flags and nothing at all stay."""
    if type(value) is dict:
        return {masked_text(str(key)): _hidden(name, item) for key, item in value.items()}
    if type(value) is list:
        return [_hidden(name, item) for item in value]
    if value == "" or (type(value) in _PLAIN and not (type(value) is int and _is_pin(name, value))):
        return value
    return MASK


# -- command lines -------------------------------------------------------------------------------------


def masked_argv(argv: Iterable[str], known: Sequence[str] = ()) -> list[str]:
    """A command line: `--api-key=x`, `--hf-token x`, `NAME=x`, `a.b.token=x`, and secrets by their form."""
    masked: list[str] = []
    flag = ""  # a secret one whose value comes next
    for argument in argv:
        name, assigned, value = argument.partition("=")
        plain = name.lstrip("-+~")
        if flag and not argument.startswith("--") and not _says_nothing(flag, argument):
            masked.append(MASK)
            flag = flag if re.search("[^s]s$", flag) else ""  # --api-keys a b c
            continue
        flag = ""
        if len(plain) < 200 and " " not in plain and secret_parameter(plain):
            if assigned:
                masked.append(argument if _says_nothing(plain, value) else f"{name}={MASK}")
                continue
            flag = plain if argument.startswith("-") else ""
        masked.append(masked_text(argument, known))
    return masked
