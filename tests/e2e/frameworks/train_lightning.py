"""One rank of a tiny model under Lightning's Trainer, of either package, with rankside's logger."""

from __future__ import annotations

import os
from importlib import import_module

import torch

import rankside
from rankside.integrations import lightning as ours

L = import_module(os.environ.get("PACKAGE", "lightning"))


class Line(L.LightningModule):
    """y = 2 x + 1."""

    def __init__(self, rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.hparams.rate)


def batches() -> torch.utils.data.DataLoader:
    x = torch.linspace(-1, 1, 64)[:, None]
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 2 * x + 1), batch_size=8)


if __name__ == "__main__":
    rankside.init(exp_root=os.environ["EXP_ROOT"], disable_tensorboard=False)
    rankside.current().capture_logging()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        max_epochs=3,
        log_every_n_steps=2,
        logger=ours.logger(),
        default_root_dir=os.environ["EXP_ROOT"],
        enable_progress_bar=False,
    )
    trainer.fit(Line(), batches(), batches())
    print("trained to step", trainer.global_step)
