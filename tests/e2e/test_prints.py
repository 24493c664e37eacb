"""What a rank prints stands in its files: with its level and place, in order, bars condensed, once."""

from __future__ import annotations

import re
import signal


def test_what_a_rank_prints_is_in_its_files(node):
    node.agent()
    rank = node.rank("""
        mon.capture_logging(print=True)
        log.addHandler(logging.StreamHandler(sys.stdout))
        print("loading", 3, "shards", end="")
        print(", done")
        log.warning("a record that is printed, too")
        for n in range(1, 101):
            print(f"\\r{n:3d}%|{'##' if n == 100 else '# '}| {n}/100", end="", flush=True)
        print("{'eval_loss': 0.61}")
        print("careful", file=sys.stderr)
        print("caf\\u00e9 {lr} %d <red>", flush=True)
        mon.close()
        """)
    node.finish(rank)
    node.until(node.all_delivered, "everything delivered")
    texts = node.texts()
    assert texts[0] == "loading 3 shards, done"
    assert texts.count("a record that is printed, too") == 1
    bars = [text for text in texts if "/100" in text]
    assert 2 <= len(bars) <= 4
    assert any("100/100" in text for text in bars)
    assert [text for text in texts if "/100" not in text][-3:] == [
        "{'eval_loss': 0.61}",
        "careful",
        "café {lr} %d <red>",
    ]
    assert node.texts(level="warning")[-1] == "careful"
    place = next(line for line in node.lines() if "loading" in line)
    assert re.search(r"\[INFO\] .*\[-+rank-0-1\.py:\d+\] : loading", place)
    assert node.log("rank-0").count("a record that is printed, too") == 1
    assert "100%|##| 100/100{'eval_loss': 0.61}" in node.log("rank-0")


def test_lines_printed_before_a_kill_are_in_the_files(node):
    node.agent()
    rank = node.rank("""
        mon.capture_logging(print=True)
        for number in range(1, 501):
            print("line", number)
        os.kill(os.getpid(), signal.SIGKILL)
        """)
    node.finish(rank, code=-signal.SIGKILL)
    node.until(lambda: "line 500" in node.texts(), "the last line")
    assert [text for text in node.texts() if text.startswith("line")] == [f"line {n}" for n in range(1, 501)]
