"""Training lines with GPU memory: real ranks, a real agent, the amdsmi package over a simulated library."""

from __future__ import annotations

import re
import time

import pytest
import simulated
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SETTINGS = "disable_tensorboard=False, log_throughput=True, log_interval=1, use_rocm_mem_info=True"
# What torch tells on a machine with GPUs: rank n has the GPU at bus n5; amd-smi counts from the other end
TRAIN = """
    from types import SimpleNamespace
    rank = {rank}
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        current_device=lambda: 0,
        get_device_properties=lambda _: SimpleNamespace(
            name="MI300X", uuid=None, pci_domain_id=1, pci_bus_id=rank << 4 | 5, pci_device_id=0
        ),
        mem_get_info=lambda: (150 << 30, 192 << 30),
    )
    sys.modules["torch"] = SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip="7.0"))
    for step in range(1, {steps} + 1):
        mon.metrics({{"lm loss": 10.0 / step}}, step=step)
        mon.throughput(step=step, elapsed_s=0.1, global_batch_size=8, seq_length=128, tflops=400.0)
        time.sleep({pause})
    time.sleep(1.0)  # for the last answer: a rank that is gone is not waited for
    """


@pytest.fixture
def gpus(tmp_path, node):
    """An agent's variables for four GPUs of 1 to 4 GiB used, counted from the other end."""
    if why := simulated.missing():
        pytest.skip(f"amdsmi over a simulated library: {why}")
    rocm = simulated.build(tmp_path / "rocm")
    rules = tmp_path / "rules"

    def make(*more):
        rules.write_text("".join(f"{rule}\n" for rule in ("gpus - * 4", "reversed - * 1", *more)))
        return {
            name: value
            for name, value in simulated.environment(rocm, rules, node.env).items()
            if name not in node.env
        }

    (node.base / "agent.yaml").write_text("system_seconds: 0.5\n")
    return make


def lines(node, rank):
    """{step: line} of the training lines."""
    found = {}
    for text in node.texts(rank):
        if match := re.match(r" iteration +(\d+)", text):
            assert int(match[1]) not in found
            found[int(match[1])] = text
    return found


def board(node):
    """{tag: {step: value}} as TensorBoard reads it."""
    events = EventAccumulator(str(node.exp / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: {each.step: each.value for each in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def train(node, steps, pause=0.1):
    return [
        node.rank(TRAIN.format(rank=rank, steps=steps, pause=pause), rank=rank, world=4, settings=SETTINGS)
        for rank in (0, 3)
    ]


def test_the_line_has_the_rank_s_own_gpu_and_the_fullest_with_its_rank(node, gpus):
    """B22, end to end: 1 to 4 GiB are used along the bus, and amd-smi counts backwards."""
    agent = node.agent("--config", "agent.yaml", **gpus("value amdsmi_get_gpu_memory_usage 3 85899345920"))
    node.finish(*train(node, 20))
    node.until(node.all_delivered, "the run finished")
    told = lines(node, 3)
    assert sorted(told) == list(range(1, 21))
    assert "hip mem usage/free/total/usage_ratio: 42.00GB/150.00GB/192.00GB/21.88%" in told[20]
    assert "rocm mem usage/free/total/usage_ratio: 4.00GB/188.00GB/192.00GB/2.08%" in told[20]
    assert "| rank-0 rocm max mem usage/usage_ratio: 80.00GB/41.67% |" in told[20]
    assert "compute per GPU (TFLOP/s/GPU): 400.0 (avg 400.0)" in told[20]
    shown = board(node)
    assert shown["rocm_used_mem(GB)"][20] == 4.0
    assert shown["rocm_max_used_mem(GB)"][20] == 80.0
    assert shown["hip_mem_usage(%)"][20] == pytest.approx(21.875)
    assert shown["system/rank-3/gpu_power_w"]
    assert shown["system/memory_percent"]
    assert lines(node, 0) == {}
    node.end(agent)


def test_a_driver_that_never_returns_delays_lines_and_nothing_else(node, gpus):
    agent = node.agent("--config", "agent.yaml", **gpus("hang amdsmi_get_gpu_memory_usage * 1"))
    began = time.monotonic()
    ranks = train(node, 30, pause=0.02)
    node.finish(*ranks)
    assert time.monotonic() - began < 30  # the training does not notice; starting Python is most of it
    node.until(node.all_delivered, "the run finished")
    told = lines(node, 3)
    assert sorted(told) == list(range(1, 31))
    assert "hip mem" in told[30]
    assert node.end(agent) == 0


def test_an_agent_killed_in_mid_run_answers_every_sample_once(node, gpus):
    environ = gpus()
    agent = node.agent("--config", "agent.yaml", **environ)
    ranks = train(node, 60)
    for at in (10, 30):
        node.until(lambda at=at: len(lines(node, 3)) >= at, f"{at} lines")
        agent.kill()
        agent.wait()
        agent = node.agent("--config", "agent.yaml", **environ)
    node.finish(*ranks)
    node.until(node.all_delivered, "the run finished")
    assert sorted(lines(node, 3)) == list(range(1, 61))
    shown = board(node)
    for tag in ("throughput(tflops/sec/gpu)", "token_throughput(tokens/sec/gpu)", "hip_used_mem(GB)"):
        assert sorted(shown[tag]) == list(range(1, 61)), tag
    assert sorted(shown["average/iteration-time"]) == list(range(3, 61))
    node.end(agent)
