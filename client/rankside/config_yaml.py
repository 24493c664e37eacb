"""YAML as a configuration may have it: each name once in its group, and never more than it says.

Separate because PyYAML takes the last of two equal names without a word, and builds all that a few hundred
bytes of merges (`<<: [*a, *a]`) stand for before anybody can count it: here the tree of nodes is looked at
first, which is as large as the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rankside.secrets import masked_text

_MOST_NAMES = 100_000  # of one group with all that is merged into it
_MERGE = "tag:yaml.org,2002:merge"


class NotYaml(ValueError):
    """Says what is wrong and where, without the text itself."""


def parsed(text: str, doubled: bool = False) -> Any:
    """What the text holds; of a name that stands twice the last, if `doubled` allows it. Raises NotYaml.

    ImportError where PyYAML is missing, RecursionError where groups lie too deep in each other.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        groups = list(_mappings(node))
        for each in () if doubled else groups:
            _refuse_doubled(each)
        _count_merged(groups)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise NotYaml(_told(error)) from None
    except NotYaml:
        raise
    except (ValueError, TypeError, OverflowError, LookupError, AttributeError):  # a date of month 13, say
        raise NotYaml("holds a value that does not fit its kind") from None
    finally:
        loader.dispose()


def _mappings(root: Any) -> Iterator[Any]:
    """Every group, each once however often it is named."""
    seen: set[int] = set()
    left = [root]
    while left:
        node = left.pop()
        if id(node) in seen or not isinstance(node.value, list):
            continue
        seen.add(id(node))
        if _is_sequence(node):
            left += node.value
        else:
            yield node
            left += [each for pair in node.value for each in pair]


def _refuse_doubled(node: Any) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if isinstance(key.value, str) and key.tag != _MERGE:
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                where = f"in lines {lines[name]} and {line}" if lines[name] != line else f"in line {line}"
                raise NotYaml(f"the name {key.value[:100]!r} stands twice, {where}")
            lines[name] = line


def _count_merged(groups: list[Any]) -> None:
    """Refuse groups that merges make too large. Groups that merge themselves are left to PyYAML."""
    sizes: dict[int, int] = {}
    for group in groups:
        stack = [group]
        while stack:
            node = stack[-1]
            merged = _merged(node)
            wait = [each for each in merged if id(each) not in sizes and each not in stack]
            if wait:
                stack += wait[:1]
                continue
            sizes[id(node)] = len(node.value) + sum(sizes.get(id(each), 0) for each in merged)
            if sizes[id(node)] > _MOST_NAMES:
                line = node.start_mark.line + 1
                raise NotYaml(f"its merges stand for too many values, in the group of line {line}")
            stack.pop()


def _merged(node: Any) -> list[Any]:
    """The groups that are merged into this one."""
    found: list[Any] = []
    for key, value in node.value:
        if key.tag == _MERGE:
            found += value.value if _is_sequence(value) else [value]
    return [each for each in found if str(each.id) == "mapping"]


def _is_sequence(node: Any) -> bool:
    return str(node.id) == "sequence"


def _told(error: Any) -> str:
    problem = masked_text(str(getattr(error, "problem", None) or "is no YAML"))[:300]
    mark = getattr(error, "problem_mark", None)
    return problem if mark is None else f"{problem} at line {mark.line + 1}, column {mark.column + 1}"
