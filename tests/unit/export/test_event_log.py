from __future__ import annotations

import json

from paceline.event_log import LogGroup, LogHeader, LogRank, LogRow, LogTelemetry, parse_line
from paceline.vocabulary import Op, Phase, RecordKind
from paceline_service.analysis.records import records_from_rows
from paceline_service.export.event_log import event_log_lines, named_groups

ROWS = [
    (int(RecordKind.COLLECTIVE), int(Op.ALL_REDUCE), 1, 7, 3, -1, 4096, 10, 20, 12, 9, 2),
    (int(RecordKind.COLLECTIVE), int(Op.SEND), 0, 0, 3, 1, 16, 21, 0, 0, 0, 16),
    (int(RecordKind.PHASE), int(Phase.BACKWARD), 0, 0, 3, -1, 0, 5, 25, 0, 0, 0),
    (int(RecordKind.STEP), 0, 0, 0, 3, -1, 0, 1, 30, 0, 0, 0),
]


def test_records_become_lines_that_mean_the_same() -> None:
    names, groups = named_groups(
        [LogGroup(name="dp", ranks=(0, 1)), LogGroup(name="dp", ranks=(0,))]
    )
    assert len(set(names)) == 2
    header = LogHeader(world_size=2, groups=groups)
    items = [
        records_from_rows(0, ROWS),
        LogTelemetry(rank=0, time_ns=4, values={"sm_clock_hz": 1}),
        LogRank(rank=0, ended="closed", dropped={"overrun": 2}),
    ]
    lines = list(event_log_lines(header, names, items))
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)
    parsed = [parse_line(json.loads(line)) for line in lines]
    assert parsed[0] == header
    rows = [line for line in parsed if isinstance(line, LogRow)]
    back = [r.with_group(names.index(r.group) if r.group else 0) for r in rows]
    assert back == ROWS
    assert parsed[-2:] == items[1:]
