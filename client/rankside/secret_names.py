"""Which names are names of secrets: of environment variables, and of parameters.

Separate because the two are judged differently: a variable by any part of its name, for it is only left out;
a parameter by its words, for a model has keys, heads and tokens of its own. In doubt, it is a secret's.
"""

from __future__ import annotations

import re
from functools import lru_cache

_VARIABLE = re.compile(
    r"KEY|TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|PASSCODE|CREDENTIAL|AUTH(?!OR(?!I))|COOKIE|WEBHOOK|BEARER"
    r"|PASS(?![A-Z])|(?<![A-Z])(?:JWT|PWD|PAT|SAS|DSN|CREDS?)(?![A-Z])|CONNECTION_?STRING"
)
_FOLDERS = ("PWD", "OLDPWD")
_PASSWORD = re.compile(r"passw|passphrase|passcode|\bpwd\b|\bpass\b")
_ALWAYS = re.compile(
    r"passw(?:or)?d|passphrase|passcode|secret|credential|\b(?:pwd|creds?|jwt|cookies?|pat|sas|dsn|oauth)\b"
    r"|bearer|webhook|authorization|connection ?string|\b(?:api|access|private|auth|ssh|account|encryption"
    r"|signing|storage|subscription|service|deploy|license|client|refresh|hf|hub|huggingface|wandb|mlflow"
    r"|databricks|openai|anthropic|github|gitlab|git|aws|azure|gcp|google|slack|comet|neptune|clearml) ?"
    r"(?:keys?|tokens?)\b"
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# What may follow the word that tells: `api_key_2`, `hf_token_value`
_TRAILING = re.compile(
    r"value|string|str|raw|b64|base64|hex|header|prod|dev|staging|backup|old|new|default|primary|secondary"
    r"|plain|plaintext|\d+"
)
# What makes of the word that follows something of a data set or a model: `text_key`, `eos_token`
_HARMLESS = {
    "key": re.compile(
        r"text|image|video|audio|labels?|inputs?|outputs?|sort|order|partition|sequence|seq|batch|metrics?"
        r"|monitor|data|dataset|target|prompt|response|completion|question|answer|query|reward|features?"
        r"|column|field|json|dict|map|lookup|loss|step|time|group|cache|state|module|model|param|index|item"
        r"|pixel|caption|chosen|rejected|messages?|content|context|source|foreign|hash|shard|layer|head"
        r"|attention|attn|cross|kv|num|value|score|eval|train|val|validation|row"
    ),
    "token": re.compile(
        r"[bep]os|pad|padding|unk|unknown|sep|cls|mask|image|img|video|audio|vision|speech|start|end|begin"
        r"|stop|special|next|prev|prefix|suffix|middle|fim|first|last|per|each|every|bo[im]|eo[itmd]|decoder"
        r"|encoder|forced|additional|blank|newline|space|delimiter|separator|placeholder|think|sink|tool"
        r"|patch|register|latent|class|task|lang|language|speaker|doc|document|text|turn|sentence|sequence"
        r"|word|sub|max|min|num"
    ),
    "pass": re.compile(r"forward|backward|first|second|single|multi|one|two|num"),
    "auth": re.compile(r"(?!)"),
}


def secret_variable(name: str) -> bool:
    """Whether an environment variable of this name is left out."""
    upper = name.upper()
    return upper not in _FOLDERS and _VARIABLE.search(upper) is not None


@lru_cache(4096)
def secret_parameter(name: str) -> bool:
    """Whether a parameter of this name is masked: `hf_token`, `apiKey`, `db-password`; not `pad_token_id`."""
    if name == name.upper() and secret_variable(name):  # of an environment that somebody made a parameter
        return True
    words = _words(name)
    if _ALWAYS.search(" ".join(words)):
        return True
    while len(words) > 1 and _TRAILING.fullmatch(words[-1]):
        words.pop()
    last, before = words[-1] if words else "", words[-2] if len(words) > 1 else ""
    if last not in _HARMLESS:
        if not last.endswith("token"):  # hftoken; but monkey, compass
            return False
        last, before = "token", last.removesuffix("token")
    return not _HARMLESS[last].fullmatch(before)


def is_password(name: str) -> bool:
    """Whether it is one of those secrets that may well be a number."""
    return _PASSWORD.search(" ".join(_words(name))) is not None


def words_in(name: str) -> int:
    """How many words a name has."""
    return len(_WORDS.findall(name))


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name[:1000])]
