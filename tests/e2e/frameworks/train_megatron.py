"""One rank of a tiny GPT under megatron.training with rankside: what a user adds is numbered."""

from __future__ import annotations

import os
import sys

import megatron_on_cpu

megatron_on_cpu.cpu_device()

import torch  # noqa: E402  the device first

import rankside  # noqa: E402  1
from rankside.integrations import megatron  # noqa: E402  2

LENGTH = 32
WORDS = f"""
    --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length {LENGTH}
    --max-position-embeddings {LENGTH} --micro-batch-size 2 --global-batch-size 4 --train-iters 6 --lr 0.01
    --tokenizer-type NullTokenizer --vocab-size 127 --make-vocab-size-divisible-by 1 --mock-data
    --transformer-impl local --distributed-backend gloo --no-gradient-accumulation-fusion
    --no-masked-softmax-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion --no-rope-fusion
    --no-persist-layer-norm --eval-interval 3 --eval-iters 1 --num-workers 0
    --log-interval 2 --log-throughput --log-timers-to-tensorboard --timing-log-level 2 --logging-level 20
    --log-validation-ppl-to-tensorboard
"""


class Numbers(torch.utils.data.Dataset):
    """Counting up, which is soon learnt."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + LENGTH + 1) % 127
        return {"tokens": tokens[:-1], "labels": tokens[1:]}


def datasets(_sizes: object, **_: object) -> tuple[Numbers, Numbers, Numbers]:
    return Numbers(), Numbers(), Numbers()


datasets.is_distributed = True


def model(pre_process: bool = True, post_process: bool = True, **_: object) -> torch.nn.Module:
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.training import get_args
    from megatron.training.arguments import core_transformer_config_from_args

    return GPTModel(
        core_transformer_config_from_args(get_args()),
        get_gpt_layer_local_spec(),
        vocab_size=128,
        max_sequence_length=LENGTH,
        pre_process=pre_process,
        post_process=post_process,
    )


def step(iterator: object, gpt: torch.nn.Module) -> tuple[torch.Tensor, object]:
    batch = next(iterator)
    places = torch.arange(LENGTH).expand_as(batch["tokens"])
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool), 1)
    losses = gpt(batch["tokens"], places, mask, labels=batch["labels"])

    def loss(output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        mean = output.float().mean()
        return mean, {"lm loss": mean.detach()}

    return losses, loss


def main() -> None:
    from megatron.core.enums import ModelType
    from megatron.training import pretrain
    from megatron.training.argument_utils import pretrain_cfg_container_from_args
    from megatron.training.arguments import parse_and_validate_args

    args = parse_and_validate_args(args_defaults={})
    config = pretrain_cfg_container_from_args(args)
    pretrain(config, datasets, ModelType.encoder_or_decoder, step, model_provider=model)


if __name__ == "__main__":
    sys.argv[1:] = [*WORDS.split(), *os.environ.get("WORDS", "").split()]
    rankside.init(
        exp_root=os.environ["EXP_ROOT"],
        disable_tensorboard=False,
        log_timers_to_tensorboard=True,
        log_throughput=True,
        log_interval=2,
    )
    rankside.current().capture_logging()
    megatron.install()  # 3
    main()
