#!/usr/bin/env bash
# One virtual environment for each framework that rankside has an adapter for, as published:
#   setup.sh FOLDER [PYTHON]
# PYTHON is that of an environment with rankside's `test` extra. Each new one sees that one's packages below its
# own, torch above all, so that a framework costs some 20 to 170 MB and no gigabytes; nothing in it is changed.
# It must be 3.11 or later, which TorchTitan asks for. PIP_FLAGS goes to pip, as in the Makefile.
set -euo pipefail
folder=$1
python=${2:-python3}
here=$(cd "$(dirname "$0")" && pwd)
beneath=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

environment() {
    "$python" -m venv --without-pip "$folder/$1"
    site=$("$folder/$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "import site; site.addsitedir('$beneath')" >"$site/beneath.pth" # with the .pth files that lie there
}

install() {
    local name=$1
    shift
    "$python" -m pip --python "$folder/$name/bin/python" install --quiet --disable-pip-version-check \
        --constraint "$here/../../../constraints.txt" ${PIP_FLAGS:-} "$@"
}

mkdir -p "$folder"

# It and datasets without their dependencies: they pin fsspec and wandb, of which others lie beneath.
torchtitan() {
    environment torchtitan
    install torchtitan --no-deps torchtitan==0.3.0 spmd_types==0.2.3 torch_checkpointing==0.1.1 datasets==4.7.0
    install torchtitan torchdata==0.11.0 tokenizers==0.23.3 safetensors==0.8.0 tyro==1.0.17 einops==0.8.2 \
        dill==0.4.0 multiprocess==0.70.18
}

# Its wheel is for Python 3.12 because of one C++ helper, of the datasets on disk, which the test does not use.
megatron() {
    environment megatron
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python --python-version 3.12 \
        --only-binary=:all: --upgrade --target "$site" ${PIP_FLAGS:-} megatron-core==0.19.2
}

huggingface() {
    environment huggingface
    install huggingface transformers==5.24.0 accelerate==1.16.0
}

# The same framework under two names
lightning() {
    environment lightning
    install lightning lightning==2.6.6 pytorch-lightning==2.6.6
}

# They share nothing but what is beneath, so they are made side by side.
running=()
for framework in torchtitan megatron huggingface lightning; do
    (
        set -e
        "$framework"
    ) &
    running+=($!)
done
for each in "${running[@]}"; do
    wait "$each"
done
date >"$folder/.ready"
