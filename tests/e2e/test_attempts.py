"""The same experiment started again: history stays, the new attempt is marked, a concurrent one is apart."""

from __future__ import annotations

import signal


def lines(first: int, last: int, after: str = "") -> str:
    return f"for number in range({first}, {last + 1}): log.info('line %d', number)\n{after}"


def test_a_restart_goes_on_in_the_same_files_with_a_visible_mark(node, numbers):
    node.agent()
    node.finish(node.rank(lines(1, 10, "os.kill(os.getpid(), signal.SIGKILL)")), code=-signal.SIGKILL)
    node.finish(node.rank(lines(11, 20)))
    node.until(node.all_delivered, "the run finished")
    texts = node.texts(0)
    assert numbers(texts) == list(range(1, 21))
    mark = next(at for at, text in enumerate(texts) if "attempt 2" in text)
    assert texts[mark - 2] == "line 10"
    assert "without a goodbye: vanished" in texts[mark - 1]
    assert texts[mark + 1] == "line 11"
    found = sorted(path.name for path in (node.exp / "snapshot").iterdir())
    assert found == ["attempt-1", "attempt-2", "key"]


def test_a_third_start_while_the_second_lives_gets_a_folder_of_its_own(node, numbers):
    node.agent()
    node.finish(node.rank(lines(1, 5)))
    wait = "open('second', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
    second = node.rank(lines(6, 10, wait + "log.info('line 99')"))
    node.until(lambda: (node.base / "second").exists() and "line 10" in node.texts(0), "the second at work")
    third = node.rank(lines(1, 3))
    node.finish(third)
    node.until(lambda: numbers(node.texts(0, root="logs/attempt-3")) == [1, 2, 3], "the third's own files")
    (node.base / "go").touch()
    node.finish(second)
    node.until(node.all_delivered, "the run finished")
    assert numbers(node.texts(0)) == [*range(1, 11), 99]


def test_a_restart_is_found_by_an_agent_that_was_itself_restarted(node, numbers):
    agent = node.agent()
    node.finish(node.rank(lines(1, 10)))
    node.until(node.all_delivered, "the run finished")
    node.end(agent)
    node.agent()
    node.finish(node.rank(lines(11, 20)))
    node.until(node.all_delivered, "the run finished")
    assert numbers(node.texts(0)) == list(range(1, 21))
    assert any("attempt 2" in text for text in node.texts(0))


def test_ranks_under_slurm_variables_alone_have_files_of_their_own(node, numbers):
    node.agent()
    both = [
        node.rank(
            lines(1, 5), None, SLURM_PROCID=str(r), SLURM_LOCALID=str(r), SLURM_NTASKS="2", SLURM_JOB_ID="7"
        )
        for r in range(2)
    ]
    node.finish(*both)
    node.until(node.all_delivered, "the run finished")
    assert numbers(node.texts(0)) == numbers(node.texts(1)) == [1, 2, 3, 4, 5]


def test_two_processes_without_any_rank_never_share_a_file_and_are_warned(node, numbers):
    node.agent()
    both = [node.rank(lines(1, 5), None) for _ in range(2)]
    node.finish(*both)
    node.until(node.all_delivered, "the run finished")
    folders = list((node.exp / "logs").glob("**/rank-*"))
    assert len(folders) == 2
    assert {int(folder.name.rpartition("-")[2]) for folder in folders} == {process.pid for process in both}
    assert node.log("rank-None").count("no rank: none of RANK") == 2


def test_a_module_switch_begins_new_folders_in_the_same_run(node, numbers):
    node.agent()
    node.finish(node.rank(lines(1, 5, "mon.set_module('sft')\n" + lines(6, 9))))
    node.until(node.all_delivered, "the run finished")
    assert numbers(node.texts(0)) == [1, 2, 3, 4, 5]
    assert numbers(node.texts(0, module="sft")) == [6, 7, 8, 9]
    assert "[sft        ]" in node.lines(0, module="sft")[0]


def test_a_signal_to_the_whole_job_does_not_cost_the_ranks_their_last_lines(node, numbers):
    agent = node.agent()
    body = """
        def late(number, frame):
            for line in range(20):
                log.info("late %d", line)
                time.sleep(0.15)
            sys.exit(0)
        signal.signal(signal.SIGTERM, late)
        signal.signal(signal.SIGUSR1, lambda *_: log.info("usr1"))
        log.info("ready")
        while True: time.sleep(0.1)
        """
    ranks = [node.rank(body, rank=r, world=2) for r in range(2)]
    node.until(lambda: all("ready" in node.texts(r) for r in range(2)), "ranks at work")
    everyone = (agent, *ranks)
    for process in everyone:
        process.send_signal(signal.SIGUSR1)  # torchrun does not forward it; Slurm sends it to all
    node.until(lambda: all("usr1" in node.texts(r) for r in range(2)), "the first signal")
    for process in everyone:
        process.send_signal(signal.SIGTERM)
    node.finish(*ranks)
    assert agent.wait(25) == 0
    for rank in range(2):
        assert numbers(node.texts(rank), "late") == list(range(20))
