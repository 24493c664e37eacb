"""One rank of TorchTitan's debug model with rankside: what a user adds is numbered."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import titan_on_cpu
import without_triton

import rankside  # 1
from rankside.integrations import torchtitan  # 2

titan_on_cpu.cpu_device()
without_triton.import_framework("torchtitan.train")
titan_on_cpu.no_nccl()
titan_on_cpu.text()

root, steps = Path(os.environ["EXP_ROOT"]), os.environ.get("STEPS", "4")
tokens = titan_on_cpu.tokenizer(root / "tokenizer" / os.environ["RANK"])
words = (
    "--training.seq_len 64 --training.local_batch_size 2 --training.dtype float32 --dataloader.dataset topics"
)
without_gpu = "--training.disable_cuda_graphs --parallelism.spmd_backend partial_dtensor"
sys.argv[1:] = [
    *("--module", "titan_on_cpu", "--config", "debugmodel", "--training.steps", steps),
    *(*words.split(), *without_gpu.split(), "--training.mixed_precision_param", "float32"),
    *("--hf_assets_path", str(tokens), "--dump_folder", str(root / "titan")),
]

if __name__ == "__main__":
    from torchtitan.train import main

    rankside.init(  # 3
        exp_root=root,
        config={"metrics": {"enable_tensorboard": True, "save_tb_folder": "tensorboard", "log_freq": 1}},
        log_timers_to_tensorboard=True,
    )
    if os.environ.get("HOW") == "watched":
        made = titan_on_cpu.debugmodel
        titan_on_cpu.debugmodel = lambda: torchtitan.watched(made())
    else:
        torchtitan.install()  # 4
    main()
