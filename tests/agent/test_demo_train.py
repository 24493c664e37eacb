"""The example training's own parts: what it reads, what it learns from, and that it runs alone."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the demo's extra is not installed")

from rankside_agent.demo import train  # noqa: E402  needs torch


@pytest.fixture
def broken_shard() -> Any:
    """The shard of rank 1, which holds the broken sample."""
    return train.Shard(rank=1, world_size=4, length=16)


def test_a_batch_is_texts_of_the_asked_length_and_the_character_after() -> None:
    batch = train.Shard(rank=0, world_size=4, length=16).batch(3)
    assert batch.shape == (3, 17)
    assert batch.min() >= 0
    assert batch.max() < len(train.ALPHABET)


def test_the_same_rank_draws_the_same_texts_and_another_rank_others() -> None:
    first, again, other = (train.Shard(rank, 4, 16).batch(8) for rank in (0, 0, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_ranks_share_the_documents_out_and_hold_one_back_each() -> None:
    shards = [train.Shard(rank, 4, 16) for rank in range(4)]
    documents = [document for shard in shards for document in shard.documents]
    assert len(documents) == len(set(documents))
    assert all(shard.held_out.encode() not in documents for shard in shards)
    assert len(documents) + len(shards) == len(train.Shard(0, 1, 16).documents) + 1


def test_a_broken_sample_is_logged_once_with_its_traceback_and_left_out(
    broken_shard: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "train"):
        broken_shard.batch(200)
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert "cannot be decoded" in caplog.text
    assert "UnicodeDecodeError" in caplog.text
    assert all(document.decode() for document in broken_shard.documents)


def test_only_rank_1_has_the_broken_sample() -> None:
    starts = [[d.startswith(b"\xff") for d in train.Shard(rank, 4, 16).documents] for rank in range(4)]
    assert [any(each) for each in starts] == [False, True, False, False]


def test_the_learning_rate_rises_to_its_full_height_and_falls_to_a_tenth() -> None:
    shares = [train.warm_then_cosine(step / 1000) for step in range(1001)]
    top = shares.index(max(shares))
    assert shares[:top] == sorted(shares[:top])
    assert shares[top:] == sorted(shares[top:], reverse=True)
    assert max(shares) == pytest.approx(1.0, abs=0.01)
    assert shares[-1] == pytest.approx(0.1)
    assert min(shares) > 0


def test_an_untrained_model_guesses_and_learns_from_what_it_sees() -> None:
    torch.manual_seed(1)
    model = train.CharGPT(width=16, layers=1, heads=2, length=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batch = train.Shard(0, 1, 16).batch(8)
    losses = []
    for _ in range(30):
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(len(train.ALPHABET)), rel=0.2)
    assert losses[-1] < 0.7 * losses[0]


def test_no_character_sees_a_later_one() -> None:
    model = train.CharGPT(width=16, layers=1, heads=2, length=16)
    x = torch.randn(1, 16, 16)
    changed = x.clone()
    changed[:, 9:] += 1.0
    before, after = model.blocks(x), model.blocks(changed)
    assert torch.allclose(before[:, :9], after[:, :9])
    assert not torch.allclose(before[:, 9:], after[:, 9:])
