"""What a loss is, and what is none: under pipeline parallelism, ranks without the last stage report -1.

Separate because the trackers and the training line must agree.
"""

from __future__ import annotations

from collections.abc import Mapping

NO_LOSS = -1.0
LATER = 2  # steps, or records, that the last rank may go on without a loss before another's counts


def is_loss(name: str) -> bool:
    """Whether a metric is a loss; the loss scale is none."""
    plain = name.lower()
    return "loss" in plain and "scale" not in plain


def real(values: Mapping[str, float]) -> dict[str, float]:
    """The losses among them that are more than the mark of a rank that has none."""
    return {name: value for name, value in values.items() if is_loss(name) and value != NO_LOSS}
