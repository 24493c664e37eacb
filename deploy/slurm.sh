#!/usr/bin/env bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:TERM@60
#
# A training with an agent of the job's own on each node, for clusters without the node service:
#   sbatch deploy/slurm.sh torchrun --nnodes 2 --nproc-per-node 8 ... train.py
# Without this script it works too: where no agent is found, the first rank starts one for its node.
set -euo pipefail

# One folder a job and node: two jobs of one user on one node do not meet.
socket="/tmp/rankside-$(id -u)/job-${SLURM_JOB_ID:?run this with sbatch}.sock"
export RANKSIDE_ENDPOINT="ipc://$socket"
export RANKSIDE_STATE_DIR="/var/tmp/rankside-$(id -u)/job-${SLURM_JOB_ID}"

# --overlap: the agent's step shares the nodes' resources with the training's step. No other agent will forward
# what trackers did not take by the job's end: they get two minutes, of which a healthy one needs none.
srun --overlap --ntasks-per-node=1 --cpus-per-task=1 --kill-on-bad-exit=0 \
    rankside agent --flush 120 &
agents=$!

# Slurm's TERM goes on to both steps: the agents then serve living ranks for their grace, and leave.
srun --ntasks-per-node=1 "$@" &
training=$!
trap 'kill -TERM "$training" "$agents" 2>/dev/null || true' TERM INT
status=0
wait "$training" || status=$?
wait "$training" 2>/dev/null || true

# A training of a second may be over before its agent has begun; a TERM would then end it before it has heard a rank.
for _ in {1..300}; do
    [[ ! -S $socket ]] && kill -0 "$agents" 2>/dev/null || break
    sleep 0.1
done
kill -TERM "$agents" 2>/dev/null || true
wait "$agents" || true
exit "$status"
