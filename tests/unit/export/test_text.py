from __future__ import annotations

import io

import pytest

from paceline_service.analysis.report import CAUSES, KINDS
from paceline_service.export.text import headline, print_report, render_text
from tests.unit.export.reports import finding, healthy, rank_row, report


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_headline_says_who_where_since_when_and_what_it_costs_everyone() -> None:
    assert headline(report()) == (
        "Rank 2 on node-a is slow in backward since step 210: "
        "it makes every step 1.14x as long and has cost 91.7 GPU-s"
    )


def test_a_running_job_has_cost_so_far() -> None:
    running = report()
    running["job"]["state"] = "running"
    assert headline(running).endswith("91.7 GPU-s so far")


def test_a_fault_that_ended_is_told_with_both_its_steps() -> None:
    assert "from step 210 to 300" in headline(report(findings=[finding(last_step=300)]))


def test_the_verdict_is_the_first_thing_a_reader_meets() -> None:
    lines = render_text(report()).splitlines()
    assert lines[2].startswith("Rank 2 on node-a is slow in backward since step 210.")


def test_the_text_tells_what_is_won_by_removing_the_rank_and_how_it_compares() -> None:
    text = flat(render_text(report()))
    assert "Without it these steps would take 12 % less time." in text
    assert "Its own work takes 1.25x as long as that of its peers." in text
    assert "Cause: its GPU is throttled." in text


def test_a_command_to_run_is_never_broken_into_lines() -> None:
    action = report()["findings"][0]["action"]
    assert f"  {action}\n" in render_text(report())


@pytest.mark.parametrize("ranks", [4, 16, 17, 1024])
def test_everything_but_commands_fits_80_columns(ranks: int) -> None:
    wide = report(ranks=ranks, findings=[finding(), finding(kind="communication", action=None)])
    wide["data"] = {"complete": False, "dropped": {"torn": 3}, "notes": ["word " * 60]}
    too_wide = [line for line in render_text(wide).splitlines() if len(line) > 80]
    assert [line for line in too_wide if "scontrol" not in line] == []


def test_of_a_thousand_ranks_the_named_one_and_the_most_blamed_are_shown() -> None:
    rows = [rank_row(rank, slow=rank == 700) for rank in range(1024)]
    text = render_text(report(ranks=1024) | {"ranks": rows, "findings": [
        finding(ranks=[5], nodes=[]),
    ]})  # fmt: skip
    table = text[text.index("busy") :].splitlines()
    assert table[1].split()[0] == "5"
    assert table[2].split()[0] == "700"
    assert "median" in text
    assert "1,014 more ranks" in text
    assert len(text.splitlines()) < 45


def test_of_four_ranks_all_are_shown_in_order() -> None:
    text = render_text(report())
    table = text[text.index("busy") :].splitlines()[1:5]
    assert [line.split()[0] for line in table] == ["0", "1", "2", "3"]


def test_a_healthy_job_is_told_so_with_what_it_was_judged_on() -> None:
    text = flat(render_text(healthy()))
    assert "Healthy: in 500 steps none of 4 ranks held the others back" in text
    assert "they wait 12 % of the time" in text


def test_missing_evidence_is_listed_with_what_to_do_about_it() -> None:
    unsure = report(verdict="insufficient_evidence", findings=[], ranks=8)
    unsure["job"] |= {"ranks_observed": 4, "steps": 0, "collectives": 0}
    unsure["ranks"] = unsure["ranks"][:4]
    text = flat(render_text(unsure))
    assert "Records of ranks 4-7." in text
    assert "paceline doctor" in text
    assert "no step ended on every rank" in text


def test_the_analysis_own_reasons_go_before_those_that_can_be_guessed() -> None:
    unsure = report(verdict="insufficient_evidence", findings=[])
    unsure["data"]["notes"] = ["12 steps could be judged, 24 are needed"]
    assert "  - 12 steps could be judged, 24 are needed." in render_text(unsure)


def test_lost_records_are_told_with_their_reasons() -> None:
    lossy = report(data={"complete": False, "dropped": {"torn_line": 1, "overrun": 1200}})
    assert "Data: incomplete" in render_text(lossy)
    assert "Dropped: overrun 1,200, torn_line 1." in flat(render_text(lossy))


def test_escape_sequences_in_names_do_not_reach_the_terminal() -> None:
    evil = report(findings=[finding(nodes=["\x1b[2Jnode\u202e"], evidence=["\x1b]0;x\x07 seen"])])
    evil["job"]["name"] = "a\nb\x1b[31m"
    text = render_text(evil)
    assert not any(ord(c) < 32 and c != "\n" for c in text)
    assert "\u202e" not in text
    assert "a?b?[31m" in text


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k not in ("healthy", "insufficient_evidence")]
)
@pytest.mark.parametrize("cause", CAUSES)
def test_every_kind_of_finding_is_a_sentence(kind: str, cause: str) -> None:
    one = finding(kind=kind, cause=cause, collective={"op": "all_reduce", "seq": 7, "group": "dp"})
    text = headline(report(verdict=kind, findings=[one]))
    assert text[0].isupper()
    assert "None" not in render_text(report(verdict=kind, findings=[one]))


def test_what_is_not_known_is_left_out_and_not_printed_as_none() -> None:
    bare = finding(
        phase=None, first_step=None, last_step=None, slowdown=None, recoverable_ratio=None,
        wasted_gpu_s=None, confidence=None, action=None, nodes=[], evidence=[], cause="unknown",
    )  # fmt: skip
    text = render_text(
        report(findings=[bare], slowdown=None, idle_ratio=None, gamma=None, wasted_gpu_s=None)
    )
    assert "None" not in text
    assert "Rank 2 is slow." in text


def test_many_ranks_are_named_by_their_runs() -> None:
    assert headline(report(findings=[finding(ranks=list(range(8, 16)))])).startswith(
        "Ranks 8-15 on node-a are slow"
    )
    assert headline(report(findings=[finding(ranks=list(range(0, 64, 8)))])).startswith(
        "Ranks 0-56 (every 8) on node-a are slow"
    )
    scattered = [rank * rank for rank in range(40)]
    assert headline(report(findings=[finding(ranks=scattered)])).startswith(
        "40 ranks, 0 to 1521, on node-a are slow"
    )


def test_a_pipe_gets_plain_text() -> None:
    out = io.StringIO()
    print_report(report(), out)
    assert out.getvalue() == render_text(report())


def test_a_terminal_gets_colour_and_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    print_report(report(), out)
    assert "\x1b[" in out.getvalue()
    assert "1.14x" in out.getvalue()


def test_who_gives_traces_is_not_told_to_mend_an_agent() -> None:
    told = report(ranks=8, verdict="insufficient_evidence", findings=[])
    told["job"] |= {"ranks_observed": 1, "collectives": 0}
    assert "paceline doctor" in render_text(told)
    told["data"]["sources"] = [{"format": "PyTorch profiler trace", "files": ["rank0.json"]}]
    text = " ".join(render_text(told).split())
    assert "Give the files of all 8 ranks; these are of 1" in text
    assert "paceline doctor" not in text
    assert "paceline.init()" not in text
