"""Who a process is: what each launcher says, in a stated order, and names that stay apart."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rankside.identity import LAUNCHERS, Hello, find_rank, host, node_ip, safe_name

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77"}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "PMIX_NAMESPACE": "ns-5",
}
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1"}


@pytest.mark.parametrize("environ", [TORCHRUN, SLURM, OPENMPI, MPICH], ids=[each.name for each in LAUNCHERS])
def test_each_launcher_is_understood_alone(environ):
    found = find_rank(environ=environ)
    assert (found.rank, found.world_size, found.local_rank, found.label) == (3, 8, 1, "3")
    assert found.notes == ()


def test_two_slurm_tasks_are_two_ranks():
    ranks = [find_rank(environ={**SLURM, "SLURM_NTASKS": "2", "SLURM_PROCID": str(n)}) for n in (0, 1)]
    assert [(rank.rank, rank.label, rank.world_size) for rank in ranks] == [(0, "0", 2), (1, "1", 2)]
    assert ranks[0].job == ranks[1].job
    assert all(rank.shared_job for rank in ranks)


def test_with_nothing_set_a_process_is_known_by_its_host_and_pid_and_is_told_so():
    found = find_rank(environ={})
    assert found.rank is None
    assert found.label == f"{safe_name(host())}-{os.getpid()}"
    assert not found.shared_job
    (note,) = found.notes
    for each in LAUNCHERS:
        assert each.rank in note


def test_two_processes_with_nothing_set_have_different_labels_and_jobs(run):
    body = """
        from rankside import identity
        found = identity.find_rank(environ={})
        print(found.label)
        print(found.job)
        """
    assert not set(run(body)[0].split()) & set(run(body)[0].split())


def test_the_order_is_torchrun_slurm_openmpi_mpich():
    everything = {}
    for number, each in reversed(list(enumerate(LAUNCHERS))):
        everything |= {each.rank: str(number), each.world_size: "9"}
        assert find_rank(environ=everything).rank == number
    assert [each.name for each in LAUNCHERS] == ["torchrun", "slurm", "openmpi", "mpich"]


def test_launchers_that_disagree_are_told_and_the_first_is_believed():
    found = find_rank(environ={**TORCHRUN, **SLURM, "SLURM_PROCID": "5"})
    assert found.rank == 3
    (note,) = found.notes
    assert "rank 3 is torchrun's RANK" in note
    assert "SLURM_PROCID=5" in note


def test_torchrun_in_one_slurm_task_a_node_is_no_disagreement():
    assert find_rank(environ={**TORCHRUN, **SLURM, "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}).notes == ()
    assert find_rank(environ={**TORCHRUN, **SLURM}).notes == ()


def test_arguments_come_before_any_launcher():
    found = find_rank(1, 4, 0, environ=TORCHRUN)
    assert (found.rank, found.world_size, found.local_rank) == (1, 4, 0)
    assert find_rank(1, environ=TORCHRUN).world_size == 8
    assert find_rank(5, environ={}).world_size == 6
    assert find_rank(0, 1, environ=SLURM).notes == ()


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "", "  ", "1e3", "0x1", "9" * 5000, "99999999999"])
def test_a_rank_that_is_no_number_is_passed_over_and_told(text):
    found = find_rank(environ={**SLURM, "RANK": text, "WORLD_SIZE": "8"})
    assert found.rank == 3
    assert len([note for note in found.notes if note.startswith("RANK: ")]) == bool(text)


def test_spaces_around_a_number_are_no_matter():
    assert find_rank(environ={"RANK": " 3 ", "WORLD_SIZE": "8\n"}).rank == 3


def test_a_world_that_is_too_small_for_the_rank_is_corrected_and_told():
    found = find_rank(environ={"RANK": "8", "WORLD_SIZE": "8"})
    assert (found.rank, found.world_size) == (8, 9)
    assert "outside a world of 8" in found.notes[0]


@pytest.mark.parametrize(
    "arguments", [(8, 8), (-1, 8), ("3", 8), (1.0, 8), (1, "8"), (0, 1, "x"), (object(), 1)]
)
def test_arguments_that_contradict_each_other_are_refused(arguments):
    with pytest.raises(ValueError, match=r"rank|world_size"):
        find_rank(*arguments, environ={})


# -- jobs ----------------------------------------------------------------------------------------------


def test_ranks_of_one_start_share_their_job_and_no_other_does():
    two = [find_rank(environ={**TORCHRUN, "RANK": str(n), "LOCAL_RANK": str(n)}) for n in (0, 1)]
    assert two[0].job == two[1].job
    others = [
        find_rank(environ={**TORCHRUN, "MASTER_PORT": "29501"}),
        find_rank(environ={**TORCHRUN, "TORCHELASTIC_RUN_ID": "x"}),
        find_rank(environ={**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"}),
        find_rank(environ={**TORCHRUN, "SLURM_JOB_ID": "1"}),
        find_rank(environ=SLURM),
        find_rank(environ={**SLURM, "SLURM_JOB_ID": "78"}),
        find_rank(environ={**SLURM, "SLURM_STEP_ID": "1"}),
        find_rank(environ={**SLURM, "SLURM_RESTART_COUNT": "1"}),
        find_rank(environ=OPENMPI),
        find_rank(environ={}),
        find_rank(0, 1, environ={}),
    ]
    assert len({two[0].job, *(other.job for other in others)}) == 1 + len(others)


def test_ranks_on_other_nodes_of_a_torchrun_job_share_it_too():
    here_and_there = {**TORCHRUN, "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "MASTER_ADDR": "n1"}
    found = find_rank(environ=here_and_there)
    assert host() not in found.job
    assert found.shared_job


POD = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}


def test_pods_that_know_the_masters_address_and_nothing_of_their_nodes_share_a_job():
    found = find_rank(environ=POD)
    assert host() not in found.job
    assert found.shared_job
    assert found.job == find_rank(environ={**POD, "RANK": "0"}).job
    assert found.job != find_rank(environ={**POD, "MASTER_ADDR": "other-master-0"}).job


@pytest.mark.parametrize(
    "address", ["", "localhost", "localhost.localdomain", "127.0.0.1", "127.9.9.9", "::1"]
)
def test_where_the_master_is_on_this_very_node_the_launching_process_names_the_job(address):
    assert f"{host()}:{os.getppid()}:" in find_rank(environ={**POD, "MASTER_ADDR": address}).job


def test_a_start_of_another_world_size_is_another_job_though_the_same_process_launches_it():
    for environ in (TORCHRUN, POD):
        sizes = [find_rank(environ={**environ, "RANK": "1", "WORLD_SIZE": size}) for size in ("2", "4")]
        assert sizes[0].job != sizes[1].job
    assert find_rank(0, 2, environ={}).job != find_rank(0, 4, environ={}).job
    assert find_rank(0, environ={}).job == find_rank(1, environ={}).job, "nobody said a size"


def test_a_single_node_started_twice_from_two_launchers_makes_two_jobs(run):
    body = """
        import subprocess, sys
        code = "from rankside import identity; print(identity.find_rank().job)"
        print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
        print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
        """
    jobs = [run(body, RANK="0", WORLD_SIZE="1")[0].split() for _ in range(2)]
    assert [len(set(each)) for each in jobs] == [1, 1]
    assert jobs[0] != jobs[1]


# -- names ---------------------------------------------------------------------------------------------

ANY = st.text(st.characters(codec=None), max_size=300)
CRAFTED = st.text(st.sampled_from("ab%/.2F\0\\é\ud800"), max_size=230)


@given(ANY | CRAFTED)
@example("..")
@example(".")
@example("")
@example("a/../b")
@example("x" * 300)
@example("é" * 150)
@example("\0")
def test_a_safe_name_is_one_part_of_a_path(name):
    safe = safe_name(name)
    assert safe
    assert len(safe.encode()) <= 200
    assert safe not in (".", "..")
    assert not safe.startswith(".")
    assert PurePosixPath("/root", safe).parts == ("/", "root", safe)
    assert safe.isprintable()


@given(ANY | CRAFTED, ANY | CRAFTED)
@example("a%2Fb", "a/b")
@example(".a", "%2Ea")
@example("", "%")
@example("", "%25")
@example("x" * 201, "x" * 202)
def test_different_names_stay_different(one, other):
    assert (safe_name(one) == safe_name(other)) == (one == other)


def test_no_short_name_can_be_made_to_look_like_a_shortened_one():
    for length in range(250, 400):
        shortened = safe_name("a" * length)
        assert "%%" in shortened
        prefix, _, digest = shortened.partition("%%")
        # what a stranger could try: the same letters, and whatever character is written as %XX
        for guess in (shortened, prefix + "%" + digest, prefix + chr(int(digest[:2], 16)) + digest[2:]):
            assert safe_name(guess) != shortened


@given(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=200))
def test_plain_names_are_left_alone(name):
    assert safe_name(name) == name


# -- the rest ------------------------------------------------------------------------------------------


def test_a_node_has_a_name_and_an_address():
    assert "." not in host()
    assert len(node_ip().split(".")) == 4


def test_a_hello_survives_its_way_and_a_strangers_is_checked(start):
    good = start()._hello.packed()
    assert Hello.unpacked(good).packed() == good
    for name, bad in (("rank", "0"), ("config", []), ("exp_root", 3), ("host", None), ("started", "now")):
        with pytest.raises(ValueError, match=name):
            Hello.unpacked({**good, name: bad})
    for name in good:
        without = {key: value for key, value in good.items() if key != name}
        if name in ("config", "version", "gpus", "launch", "environ", "outputs"):  # of an older client
            assert Hello.unpacked(without).packed()[name] in ({}, "")
            continue
        with pytest.raises(ValueError, match=f"hello: {name} is missing"):
            Hello.unpacked(without)
    for text in ("a\0b", "x" * 5000):
        with pytest.raises(ValueError, match="too long or holds a NUL"):
            Hello.unpacked({**good, "module": text})
    with pytest.raises(ValueError, match="not a mapping"):
        Hello.unpacked([1])


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("launch", {"argv": "train.py"}),
        ("launch", {"argv": [1]}),
        ("launch", {"cwd": None}),
        ("launch", {"environ": []}),
        ("launch", {"environ": {"A": 1}}),
        ("launch", {"environ": {1: "A"}}),
        ("launch", {"cwd": "a\0b"}),
        ("launch", {"argv": ["x" * 9000]}),
        ("launch", {"argv": ["x" * 4000] * 100}),
        ("launch", []),
        ("environ", []),
        ("environ", {"WANDB_MODE": 1}),
        ("environ", {1: "x"}),
        ("environ", {"LD_PRELOAD": "/evil.so"}),
        ("environ", {"WANDB_SERVICE": "x"}),
        ("environ", {"WANDB_X=Y": "x"}),
        ("environ", {"WANDB_MODE": "a\0b"}),
        ("environ", {"WANDB_MODE": "\ud800"}),
        ("environ", {"WANDB_NOTES": "x" * 40_000}),
        ("environ", {f"WANDB_{number}": "x" * 30_000 for number in range(9)}),
    ],
)
def test_how_a_stranger_was_started_is_checked(start, name, bad):
    good = start()._hello.packed()
    with pytest.raises(ValueError, match=f"hello: {name}"):
        Hello.unpacked({**good, name: bad})


def test_of_a_launch_only_what_is_known_is_kept(start):
    good = start()._hello.packed()
    assert Hello.unpacked({**good, "launch": {"cwd": "/", "more": 1}}).launch == {
        "argv": [],
        "cwd": "/",
        "environ": {},
    }


def test_the_keys_of_trackers_are_not_shown(start):
    hello = Hello.unpacked({**start()._hello.packed(), "environ": {"WANDB_API_KEY": "hunter2"}})
    assert "hunter2" not in repr(hello)
    assert hello.environ == {"WANDB_API_KEY": "hunter2"}


def test_the_last_rank_speaks_and_one_that_knows_of_no_other():
    assert [find_rank(rank, 2).last for rank in (0, 1)] == [False, True]
    assert find_rank(environ={}).last
