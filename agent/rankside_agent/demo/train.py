"""Train a small character GPT with PyTorch DDP on CPUs, watched by rankside.

    torchrun --nproc-per-node 4 train.py --steps 800 --exp-name demo --workspace work

It stands alone so that it can be read and copied: a plain training script in which everything of rankside
goes by the name `mon`. The text ships with Python (`pydoc_data.topics`), so nothing is fetched.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import random
import time
from pathlib import Path
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
import torch.nn.functional as F
from loguru import logger
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import rankside

# The loop speaks through loguru and the data through logging: most programs mix the two.
log = logging.getLogger("train")

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
ALPHABET = sorted(set("".join(topics.values())))
SLOW_BATCH_S = 0.25


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with rankside.init(
        exp_name=args.exp_name,
        workspace=args.workspace,
        rank=RANK,
        world_size=WORLD_SIZE,
        log_interval=args.log_interval,
        log_throughput=True,
        log_progress=True,
        log_timers_to_tensorboard=True,
        disable_tensorboard="tensorboard" not in args.trackers,
        disable_mlflow="mlflow" not in args.trackers,
        disable_wandb="wandb" not in args.trackers,
    ) as mon:
        mon.capture_logging()
        mon.params(vars(args))
        # Without torchrun, as plain `python train.py`, it is a world of one.
        meet = "env://" if dist.is_torchelastic_launched() else "tcp://127.0.0.1:0"
        dist.init_process_group("gloo", init_method=meet, rank=RANK, world_size=WORLD_SIZE)
        train(args)
        dist.destroy_process_group()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small character GPT, watched by rankside.")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--exp-name", default="demo")
    parser.add_argument("--workspace", default="work")
    parser.add_argument(
        "--trackers", nargs="*", default=["tensorboard"], choices=["tensorboard", "mlflow", "wandb"]
    )
    parser.add_argument("--batch-size", type=int, default=8, help="texts a rank and step")
    parser.add_argument("--length", type=int, default=64, help="characters a text")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.006)
    parser.add_argument("--clip", type=float, default=1.0, help="longest gradient")
    parser.add_argument("--log-interval", type=int, default=100)
    parser.add_argument("--eval-interval", type=int, default=200)
    parser.add_argument("--save-interval", type=int, default=400)
    return parser.parse_args()


def train(args: argparse.Namespace) -> None:
    mon = rankside.current()
    model = DistributedDataParallel(CharGPT(args.width, args.layers, args.heads, args.length))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: warm_then_cosine(done / args.steps))
    shard = Shard(RANK, WORLD_SIZE, args.length)
    texts = args.batch_size * WORLD_SIZE
    size = sum(parameter.numel() for parameter in model.parameters())
    logger.info("{:,} parameters, {} documents", size, len(shard.documents))

    for step in range(1, args.steps + 1):
        began = time.perf_counter()
        loss = model(load(shard, args.batch_size, step))
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        rate = schedule.get_last_lr()[0]
        schedule.step()
        elapsed = time.perf_counter() - began

        mon.metrics({"lm loss": loss.detach(), "grad norm": norm, "learning rate": rate}, step=step)
        mon.throughput(step=step, elapsed_s=elapsed, global_batch_size=texts, seq_length=args.length)
        logger.debug("step {}: {:.0f} ms", step, 1000 * elapsed)
        if step % args.log_interval == 0:
            logger.info("step {}/{}: loss {:.3f}, gradient {:.2f}", step, args.steps, loss.item(), norm)
        if step % args.eval_interval == 0 or step == args.steps:
            mon.metrics({"held-out loss": held_out_loss(model.module, shard)}, step=step)
        if RANK == 0 and (step % args.save_interval == 0 or step == args.steps):
            save(model.module, step)


def warm_then_cosine(progress: float) -> float:
    """The share of the full learning rate: up within the first twentieth, then along a cosine to a tenth."""
    return min(0.02 + 20 * progress, 0.55 + 0.45 * math.cos(math.pi * progress))


def load(shard: Shard, size: int, step: int) -> Tensor:
    began = time.perf_counter()
    if RANK == 2 % WORLD_SIZE and step % 200 == 5:
        time.sleep(1.2 * SLOW_BATCH_S)  # stands for a file system that is busy now and then
    batch = shard.batch(size)
    waited = time.perf_counter() - began
    if waited > SLOW_BATCH_S:
        log.warning("slow batch at step %d: %.0f ms", step, 1000 * waited)
    return batch


def held_out_loss(model: nn.Module, shard: Shard) -> float:
    with torch.no_grad():
        loss = model(shard.held_out_batch(32)).item()
    logger.info("held-out loss {:.3f}", loss)
    return float(loss)


def save(model: nn.Module, step: int) -> None:
    mon = rankside.current()
    path = Path(mon.exp_root, "checkpoints", f"step-{step}.pt")
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), path)
    mon.event("checkpoint", path=path, step=step)


class Shard:
    """This rank's share of the documents, read as random windows of text."""

    def __init__(self, rank: int, world_size: int, length: int) -> None:
        documents = [text.encode() for text in sorted(set(topics.values())) if len(text) > 2 * length]
        documents[1] = b"\xff" + documents[1]  # no corpus is without a broken sample; this one is for rank 1
        self.documents = documents[rank::world_size]
        self.held_out = self.documents.pop().decode()
        self.numbers = {character: number for number, character in enumerate(ALPHABET)}
        self.random = random.Random(rank)
        self.length = length

    def batch(self, size: int) -> Tensor:
        return torch.stack([self.window(self.document()) for _ in range(size)])

    def held_out_batch(self, size: int) -> Tensor:
        return torch.stack([self.window(self.held_out) for _ in range(size)])

    def document(self) -> str:
        while True:
            chosen = self.random.choice(self.documents)
            try:
                return chosen.decode()
            except UnicodeDecodeError:
                log.exception("a sample of %d bytes cannot be decoded; going on without it", len(chosen))
                self.documents.remove(chosen)

    def window(self, text: str) -> Tensor:
        start = self.random.randrange(len(text) - self.length)
        return torch.tensor([self.numbers[character] for character in text[start : start + self.length + 1]])


class CharGPT(nn.Module):
    """Characters in; out comes the loss of guessing each next one."""

    def __init__(self, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.character, self.place = nn.Embedding(len(ALPHABET), width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(ALPHABET)))

    def forward(self, texts: Tensor) -> Tensor:
        given, wanted = texts[:, :-1], texts[:, 1:]
        x = self.character(given) + self.place(torch.arange(given.shape[1]))
        return F.cross_entropy(self.head(self.blocks(x)).flatten(0, 1), wanted.flatten())


class Block(nn.Module):
    """One layer: causal self-attention, then two linear layers, each added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_linear = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.linear = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.by_head(part) for part in self.qkv(self.norm(x)).chunk(3, dim=-1))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(heads.transpose(1, 2).flatten(2))
        change: Tensor = self.linear(self.norm_linear(x))
        return x + change

    def by_head(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


if __name__ == "__main__":
    main()
