"""What a user of TensorBoard sees of a run: names, steps, texts, and attempts that continue each other."""

from __future__ import annotations

import json
import math

import pytest

from rankside.wire import Kind
from rankside_agent.sinks import cursor_path, event_run, event_tags, load
from rankside_agent.sinks.event_file import records
from rankside_agent.sinks.forwarder import Forwarder


@pytest.fixture
def deliver(run, board):
    """Forward all there is; returns what TensorBoard shows then."""

    def deliver(read=True):
        forwarder = Forwarder(run.path, "tensorboard")
        forwarder.hurry()
        while not forwarder.drained:
            assert forwarder.round() < 1, forwarder.cursor.last_error
        forwarder.close("done")
        return board(read)

    return deliver


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({}, False),
        ({"disable_tensorboard": True}, False),
        ({"disable_tensorboard": False}, True),
        ({"disable_tensorboard": True, "profile": True}, True),
        ({"disable_tensorboard": True, "metrics.enable_tensorboard": True}, True),
    ],
)
def test_a_run_has_tensorboard_where_its_parameters_say_so(config, wanted):
    assert load("tensorboard").wanted(config) is wanted


def test_tags_keep_their_names(run, deliver):
    tags = ["Episode / total (mean)", "mfu(%)", "a:b", "lm loss", "é", "", "../x", "a" * 500, "lone \ud800"]
    run.metrics(run.open(), 1, **dict.fromkeys(tags, 1.0))
    page = deliver()
    for tag in tags[:-1]:
        assert page.scalars(tag) == [(1, 1.0)]
    assert page.scalars("lone \\ud800") == [(1, 1.0)]


def test_metrics_without_a_step_stand_at_the_last_one(run, deliver):
    channel = run.open()
    for step in (None, 5, None, 6, None):
        run.metrics(channel, step, loss=1.0)
    assert [step for step, _ in deliver().scalars("loss")] == [0, 5, 5, 6, 6]


def test_the_last_step_is_known_after_a_restart(run, deliver):
    channel = run.open()
    run.metrics(channel, 41, loss=1.0)
    deliver()
    run.metrics(channel, None, loss=2.0)
    assert deliver().scalars("loss") == [(41, 1.0), (41, 2.0)]


def test_the_interval_thins_out_steps_and_nothing_else(run, deliver):
    channel = run.open(config={"tensorboard_log_interval": 10})
    for step in range(35):
        run.metrics(channel, step, loss=1.0)
    run.metrics(channel, None, eval=1.0)
    page = deliver()
    assert [step for step, _ in page.scalars("loss")] == [0, 10, 20, 30]
    assert page.scalars("eval") == [(34, 1.0)]


def test_times_are_those_of_the_records_whatever_the_clock_does(run, deliver):
    channel = run.open()
    times = []
    for step, jump in enumerate((0, 1, -3600, 315_000_000, -315_000_000)):
        run.time += jump
        run.metrics(channel, step, loss=1.0)
        times.append(run.time)
    events = deliver().events("loss")
    assert [event.step for event in events] == [0, 1, 2, 3, 4]
    assert [event.wall_time for event in events] == times


def test_params_are_a_table_that_renders(run, deliver):
    from tensorboard.plugin_util import markdown_to_safe_html

    values = {"lr": 0.1, "a|b": "<b>_x_</b> | `y`", "optimizer": {"name": "adam", "betas": [0.9, 0.95]}}
    run.add(run.open(), (Kind.PARAMS, ({**values, "text": "two\nlines", "deep": deep(50)},)))
    ((step, text),) = deliver().texts("params")
    assert step == 0
    html = markdown_to_safe_html(text)
    for cell in ("lr", "0.1", "a|b", "&lt;b&gt;_x_&lt;/b&gt; | `y`", "optimizer.betas", "[0.9, 0.95]"):
        assert f"<td>{cell}</td>" in html
    assert "two<br>lines" in html
    assert html.count("<tr>") == 7


def deep(levels):
    value = {"bottom": 1}
    for _ in range(levels):
        value = {"down": value}
    return value


def test_an_event_is_a_text_at_the_step_it_happened(run, deliver):
    channel = run.open()
    run.metrics(channel, 100, loss=1.0)
    run.add(channel, (Kind.EVENT, ("checkpoint", {"path": "/ckpt/100"})), (Kind.ARTIFACT, ("/trace.json",)))
    page = deliver()
    ((step, text),) = page.texts("events/checkpoint")
    assert step == 100
    assert "/ckpt/100" in text
    assert "/trace.json" in page.texts("events/artifact")[0][1]


def test_a_resumed_training_replaces_the_steps_it_does_again(run, deliver):
    first = run.open(attempt=1)
    run.add(first, (Kind.PARAMS, ({"attempt": "first"},)))
    for step in [*range(1, 213), 10_000]:
        run.metrics(first, step, loss=1.0)
    run.end(first, "killed")
    deliver()
    second = run.open(attempt=2)
    run.add(second, (Kind.PARAMS, ({"attempt": "second"},)), (Kind.EVENT, ("resumed", {})))
    for step in range(201, 261):
        run.metrics(second, step, loss=2.0)
    page = deliver()
    assert page.scalars("loss") == [(s, 1.0) for s in range(1, 201)] + [(s, 2.0) for s in range(201, 261)]
    params = page.texts("params")
    assert [step for step, _ in params] == [0, 201]
    assert "first" in params[0][1]
    assert "second" in params[1][1]
    assert [step for step, _ in page.texts("events/resumed")] == [201]
    assert len(page.files()) == 2
    assert "attempt-2" in page.files()[1].name


def test_a_page_that_stays_open_shows_the_same(run, deliver, board):
    open_page = board()
    for attempt, steps in ((1, range(50)), (2, range(30, 80)), (3, range(60, 70))):
        channel = run.open(attempt=attempt)
        for step in steps:
            run.metrics(channel, step, loss=float(attempt))
        deliver()
        assert open_page.refresh().scalars("loss") == board().scalars("loss")
    assert [step for step, _ in open_page.scalars("loss")] == list(range(70))


def test_a_training_that_begins_anew_replaces_everything(run, deliver):
    for attempt in (1, 2):
        channel = run.open(attempt=attempt)
        run.add(channel, (Kind.PARAMS, ({"attempt": attempt},)), (Kind.METRICS, (None, {"early": attempt})))
        for step in range(5):
            run.metrics(channel, step, loss=float(attempt))
    page = deliver()
    assert page.scalars("loss") == [(step, 2.0) for step in range(5)]
    assert page.scalars("early") == [(0, 2.0)]
    ((_, params),) = page.texts("params")
    assert "| attempt | 2 |" in params


def attempts(run, *logged):
    """Each attempt logs (step, values) in turn."""
    for attempt, points in enumerate(logged, 1):
        channel = run.open(attempt=attempt)
        for step, values in points:
            run.metrics(channel, step, **values)


def test_a_first_word_at_step_0_does_not_hide_what_a_resumed_training_keeps(run, deliver):
    started = [(0, {"startup/load_seconds": 12.5})]
    attempts(run, each_step(range(212), 1.0), started + each_step(range(200, 260), 2.0))
    page = deliver()
    assert page.scalars("startup/load_seconds") == [(0, 12.5)]
    assert page.scalars("loss") == [(s, 1.0) for s in range(200)] + [(s, 2.0) for s in range(200, 260)]


def each_step(steps, loss):
    return [(step, {"loss": loss}) for step in steps]


@pytest.mark.parametrize(("again", "shown"), [(3.0, [3.0]), (4.0, [3.0, 4.0])])
def test_a_word_at_step_0_that_every_attempt_repeats_hides_nothing(run, deliver, again, shown):
    first = [(0, {"load": 3.0}), *each_step(range(9), 1.0)]
    attempts(run, first, [(0, {"load": again}), (9, {"loss": 1.0})])
    page = deliver()
    assert page.scalars("load") == [(0, load) for load in shown]
    assert [step for step, _ in page.scalars("loss")] == list(range(10))


def test_a_step_that_is_repeated_exactly_shows_once_where_nothing_else_is_hidden(run, deliver):
    attempts(run, each_step(range(5), 1.0), each_step(range(4, 8), 2.0))
    assert deliver().scalars("loss") == [(s, 1.0) for s in range(4)] + [(s, 2.0) for s in range(4, 8)]


def test_an_exact_repetition_hides_no_other_tag(run, deliver):
    attempts(run, [*each_step(range(5), 1.0), (4, {"eval": 5.0})], each_step((4, 5), 2.0))
    page = deliver()
    assert page.scalars("eval") == [(4, 5.0)]
    assert page.scalars("loss")[-3:] == [(4, 1.0), (4, 2.0), (5, 2.0)]


def test_a_tag_that_goes_on_does_not_say_that_the_others_do(run, deliver):
    evaluated = [(200, {"eval": 1.0})]
    resumed = [(201, {"eval": 2.0}), *each_step(range(201, 205), 2.0)]
    attempts(run, [*each_step(range(201), 1.0), *evaluated, *each_step(range(201, 212), 1.0)], resumed)
    page = deliver()
    assert page.scalars("eval") == [(200, 1.0), (201, 2.0)]
    assert [step for step, _ in page.scalars("loss")] == list(range(205))


def test_a_training_that_begins_anew_keeps_its_own_first_words(run, deliver):
    started = [(0, {"startup/load_seconds": 12.5})]
    attempts(run, each_step(range(50), 1.0), started + each_step(range(30), 2.0))
    page = deliver()
    assert page.scalars("startup/load_seconds") == [(0, 12.5)]
    assert page.scalars("loss") == [(step, 2.0) for step in range(30)]  # 30 to 49 are hidden, in the file


def test_a_new_attempt_never_hides_its_own_points(run, deliver):
    early = each_step_of("other", range(event_run.MOST_STEPS))
    late = [(45, {"loss": 2.0}), (40, {"older": 2.0})]
    attempts(run, [*each_step(range(50), 1.0), (49, {"older": 1.0})], early + late)
    page = deliver()
    assert [step for step, _ in page.scalars("other")] == list(range(event_run.MOST_STEPS))
    assert page.scalars("loss")[-2:] == [(44, 1.0), (45, 2.0)]
    assert page.scalars("older") == [(40, 2.0)]


def each_step_of(name, steps):
    return [(step, {name: 1.0}) for step in steps]


def test_new_names_at_steps_long_passed_are_not_held_back_for_long(run, deliver):
    attempts(run, each_step(range(50), 1.0), each_step_of("other", range(event_run.MOST_STEPS)))
    page = deliver()
    assert len(page.scalars("other")) == event_run.MOST_STEPS
    assert len(page.scalars("loss")) == 50


def test_where_an_attempt_goes_on_is_known_after_a_crash_at_any_point(run, deliver):
    logged = [(0, {"load": 3.0}), *each_step(range(6), 1.0)], [(0, {"load": 4.0}), *each_step((4, 5, 6), 2.0)]
    for attempt, points in enumerate(logged, 1):
        channel = run.open(attempt=attempt)
        for step, values in points:
            run.metrics(channel, step, **values)
            deliver()
    page = deliver()
    assert page.scalars("load") == [(0, 3.0), (0, 4.0)]
    assert page.scalars("loss") == [(s, 1.0) for s in range(4)] + [(s, 2.0) for s in (4, 5, 6)]


@pytest.mark.parametrize("names", [[f"n{n}" for n in range(event_tags.MOST + 1)], ["n" * 250_000]])
def test_beyond_the_names_that_are_remembered_an_attempts_first_step_counts(run, deliver, names):
    many = [(0, dict.fromkeys(names, 1.0))]
    attempts(run, many + each_step(range(9), 1.0), [(4, {"other": 1.0}), *each_step((5, 6), 2.0)])
    page = deliver()
    assert [step for step, _ in page.scalars("loss")] == [0, 1, 2, 3, 5, 6]
    assert page.scalars("other") == [(4, 1.0)]


def test_a_place_of_an_older_version_goes_on_by_the_first_step(run, deliver):
    attempts(run, each_step(range(9), 1.0))
    deliver()
    path = cursor_path(run.path, "tensorboard")
    told = json.loads(path.read_text())
    for name in ("tags", "own", "undecided"):
        del told["private"]["tensorboard"][name]
    path.write_text(json.dumps(told))
    channel = run.open(attempt=2)
    for step in (5, 6):
        run.metrics(channel, step, loss=2.0)
    assert [step for step, _ in deliver().scalars("loss")] == [0, 1, 2, 3, 4, 5, 6]


def test_an_attempt_without_steps_shows_its_texts_when_it_ends(run, deliver):
    first = run.open(attempt=1)
    run.metrics(first, 7, loss=1.0)
    second = run.open(attempt=2)
    run.add(second, (Kind.PARAMS, ({"attempt": 2},)))
    assert not deliver().texts("params")
    run.end(second, "failed")
    assert [step for step, _ in deliver().texts("params")] == [7]


def test_what_is_held_back_survives_a_crash(run, deliver):
    run.metrics(run.open(attempt=1), 7, loss=1.0)
    second = run.open(attempt=2)
    run.add(second, (Kind.PARAMS, ({"attempt": 2},)))
    deliver()
    run.metrics(second, 5, loss=2.0)
    page = deliver()
    assert [step for step, _ in page.texts("params")] == [5]
    assert page.scalars("loss") == [(5, 2.0)]


def test_not_everything_can_be_held_back(run, deliver):
    second = run.open(attempt=2)
    for _ in range(event_run.MOST_HELD + 5):
        run.metrics(second, None, loss=1.0)
    assert len(deliver().scalars("loss")) == event_run.MOST_HELD + 5


def test_late_records_of_an_older_attempt_do_not_bend_the_line(run, deliver):
    first = run.open(attempt=1)
    run.metrics(first, 1, loss=1.0)
    second = run.open(attempt=2)
    run.metrics(second, 10, loss=2.0)
    for step in (8, 9, 10, 11):  # found in the dead rank's spool when the next attempt was already running
        run.metrics(first, step, loss=1.0)
    run.end(first)
    run.metrics(second, 11, loss=2.0)
    page = deliver()
    assert sorted(page.scalars("loss")) == [(1, 1.0), (8, 1.0), (9, 1.0), (10, 2.0), (11, 2.0)]
    assert run.status()["superseded"] == 2


def test_an_attempt_beside_a_living_one_is_a_run_of_its_own(run, deliver, make_board):
    first = run.open(attempt=1)
    second = run.open(attempt=2, log_root="logs/attempt-2")
    for step in range(5):
        run.metrics(first, step, loss=1.0)
        run.metrics(second, step, loss=2.0)
    assert deliver().scalars("loss") == [(step, 1.0) for step in range(5)]
    beside = make_board(run.exp_root / "tensorboard" / "attempt-2")
    assert beside.scalars("loss") == [(step, 2.0) for step in range(5)]


@pytest.mark.parametrize("log_root", ["../../elsewhere", "/etc", "logs/attempt-2/../../..", "logs/attempt-x"])
def test_no_log_root_leads_out_of_the_folder(run, deliver, log_root):
    run.metrics(run.open(log_root=log_root), 1, loss=1.0)
    assert deliver().scalars("loss") == [(1, 1.0)]


def test_an_attempt_gets_its_own_file_also_when_the_process_was_replaced(run, deliver):
    for attempt in (1, 2, 3):
        channel = run.open(attempt=attempt)
        run.metrics(channel, attempt, loss=1.0)
    page = deliver()
    assert [f"attempt-{n}" in page.files()[n - 1].name for n in (1, 2, 3)] == [True] * 3
    assert all(".rank-7." in path.name for path in page.files())


@pytest.mark.parametrize("label", ["../../7", "7\n", "\ud800", "x" * 4000])
def test_a_label_is_made_safe_for_the_files_name(run, deliver, label):
    run.metrics(run.open(label=label), 1, loss=1.0)
    page = deliver()
    assert page.scalars("loss") == [(1, 1.0)]
    assert page.files()[0].name.isprintable()


def test_a_deleted_event_file_costs_what_was_in_it_and_no_more(run, board, until):
    channel = run.open()
    process = run.start()
    run.metrics(channel, 1, loss=1.0)
    until(lambda: run.status().get("delivered") == 1)
    for path in board().files():
        path.unlink()
    run.metrics(channel, 2, loss=2.0)
    until(lambda: run.status().get("delivered") == 2)
    run.finish(process)
    assert board().scalars("loss") == [(2, 2.0)]
    assert run.status()["failures"] >= 1


def test_values_beyond_single_precision_are_infinite_as_in_tensorboards_own_writers(run, deliver):
    run.metrics(run.open(), 1, big=1e300, small=-1e300, large=2**63)
    page = deliver()
    assert page.scalars("big") == [(1, math.inf)]
    assert page.scalars("small") == [(1, -math.inf)]
    assert page.scalars("large") == [(1, 2.0**63)]


def test_a_record_of_20_000_values_arrives_whole(run, deliver):
    from tensorboard.compat.proto import event_pb2

    run.metrics(run.open(), 1, **{f"name {number}": float(number) for number in range(20_000)})
    page = deliver(read=False)
    (_, _, (_, data)) = records(page.files()[0])
    values = event_pb2.Event.FromString(data).summary.value
    assert [(value.tag, value.simple_value) for value in values] == [(f"name {n}", n) for n in range(20_000)]
    assert run.status()["points"] == 20_000


def test_torchtitans_folder_is_used_where_torchtitans_switch_asks(run, deliver, make_board):
    titan = {"disable_tensorboard": True, "metrics.enable_tensorboard": True}
    run.metrics(run.open(config={**titan, "metrics.save_tb_folder": "tb/mine"}), 1, loss=1.0)
    deliver()
    assert make_board(run.exp_root / "tb" / "mine").scalars("loss") == [(1, 1.0)]


@pytest.mark.parametrize("folder", ["../elsewhere", "/etc/tb", "a/../../b"])
def test_no_torchtitan_folder_leads_out_of_the_run(run, deliver, folder):
    titan = {
        "disable_tensorboard": True,
        "metrics.enable_tensorboard": True,
        "metrics.save_tb_folder": folder,
    }
    run.metrics(run.open(config=titan), 1, loss=1.0)
    assert deliver().scalars("loss") == [(1, 1.0)]


def test_standard_scalars_go_where_their_flags_say(run, deliver):
    flags = {"log_timers_to_tensorboard": False, "log_batch_size_to_tensorboard": True}
    names = {"iteration-time": 1.0, "batch-size": 2.0, "world-size": 3.0, "learning-rate": 4.0, "mine": 5.0}
    run.metrics(run.open(config=flags), 1, **names)
    page = deliver()
    assert {name for name in names if page.scalars(name)} == {"batch-size", "learning-rate", "mine"}
    assert run.status()["points"] == 3


def test_another_rank_that_is_ahead_does_not_say_where_an_attempt_begins(run, deliver):
    everyone = {"metrics.save_for_all_ranks": True}
    first, last = run.open(rank=0, config=everyone), run.open(rank=7, config=everyone)
    for step in range(1, 6):
        run.metrics(first, step, loss=1.0)
        run.metrics(last, step, loss=1.0)
    again_first = run.open(rank=0, attempt=2, config=everyone)
    again_last = run.open(rank=7, attempt=2, config=everyone)
    for step in (4, 5):
        run.metrics(again_first, step, loss=2.0)
    for step in (3, 4, 5):
        run.metrics(again_last, step, loss=2.0)
    page = deliver()
    assert page.scalars("loss") == [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0), (5, 2.0)]
    assert page.scalars("rank-0/loss") == [(1, 1.0), (2, 1.0), (4, 2.0), (5, 2.0)]


def test_an_attempt_of_another_agent_is_gone_back_over_from_the_first_step(make_run, make_board, tmp_path):
    """The state is new, as on another node: what the first attempt has is not known, and is in the way."""
    for attempt in (1, 2):
        run = make_run(exp_root=tmp_path / "exp")
        channel = run.open(attempt=attempt)
        run.add(channel, (Kind.PARAMS, ({"lr": 0.1},)))
        for step in range(1, 13):
            run.metrics(channel, step, loss=float(attempt))
        run.end(channel)
        run.drain()
    assert make_board(tmp_path / "exp" / "tensorboard").scalars("loss") == [(n, 2.0) for n in range(1, 13)]
