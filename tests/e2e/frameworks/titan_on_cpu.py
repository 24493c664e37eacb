"""What TorchTitan 0.3.0 needs to train without a GPU; and a model, text and tokenizer for a short one.

Every line here is about the missing GPU, and none about rankside.
"""

from __future__ import annotations

from pathlib import Path
from pydoc_data.topics import topics
from types import SimpleNamespace
from typing import Any

import torch


def cpu_device() -> None:
    """`torch.cpu` with the calls of `torch.cuda` that TorchTitan makes, and TorchTitan's choice of it."""
    import torch._utils as chooser

    chooser._get_available_device_type = lambda: "cpu"  # comes to "cuda" where there is none
    cpu = torch.cpu
    cpu.get_device_name = lambda *_: "CPU"
    cpu.get_device_properties = lambda *_: SimpleNamespace(total_memory=2**34)
    cpu.memory_stats = lambda *_: {"active_bytes.all.peak": 2**30, "reserved_bytes.all.peak": 2**31}
    for name in ("reset_peak_memory_stats", "empty_cache", "set_device", "manual_seed_all"):
        setattr(cpu, name, lambda *_: None)


def no_nccl() -> None:
    """What gloo cannot do: sums with a factor, timeouts of its own."""
    import torchtitan.distributed.utils as distributed
    from torch.distributed.fsdp import FSDPModule

    distributed.set_pg_timeouts = lambda *_, **__: None
    wanted = FSDPModule.set_gradient_divide_factor

    def with_sums(self: FSDPModule, factor: float) -> None:
        self.set_force_sum_reduction_for_comms(True)
        wanted(self, factor)

    FSDPModule.set_gradient_divide_factor = with_sums


def tokenizer(folder: Path) -> Path:
    """One token a character, in the files that a Hugging Face tokenizer has."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = {chr(number): number for number in range(32, 127)}
    made = Tokenizer(models.WordLevel({**letters, "<unk>": 0}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return folder


def text() -> None:
    """A text that ships with Python, among TorchTitan's data sets."""
    from datasets import Dataset
    from torchtitan.hf_datasets import DatasetConfig
    from torchtitan.hf_datasets.text_datasets import DATASETS

    def load(_: str) -> Dataset:
        return Dataset.from_list([{"text": each} for each in sorted(topics.values())])

    DATASETS["topics"] = DatasetConfig(path="", loader=load, sample_processor=lambda sample: sample["text"])


def debugmodel() -> Any:
    """TorchTitan's own debug model, with an attention that needs no GPU. `--config debugmodel` calls it."""
    from torchtitan.models import llama3
    from torchtitan.models.common import ScaledDotProductAttention
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    llama3.get_attention_config = lambda _: ScaledDotProductAttention.Config()
    return llama3_debugmodel()
