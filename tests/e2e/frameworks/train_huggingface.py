"""One rank of a tiny GPT-2 under Hugging Face's Trainer, with rankside's callback."""

from __future__ import annotations

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import rankside
from rankside.integrations import huggingface

LENGTH = 32


class Numbers(torch.utils.data.Dataset):
    """Counting up, which is soon learnt."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + LENGTH) % 128
        return {"input_ids": tokens, "labels": tokens}


if __name__ == "__main__":
    rankside.init(exp_root=os.environ["EXP_ROOT"], disable_tensorboard=False, log_timers_to_tensorboard=True)
    rankside.current().capture_logging()
    root = rankside.current().exp_root or os.environ["EXP_ROOT"]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        output_dir=os.path.join(root, "checkpoints"),
        max_steps=6,
        per_device_train_batch_size=4,
        learning_rate=0.01,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=3,
        save_steps=3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Numbers(),
        eval_dataset=Numbers(),
        callbacks=[huggingface.callback(files=["trainer_state.json"])],
    )
    trainer.train()
