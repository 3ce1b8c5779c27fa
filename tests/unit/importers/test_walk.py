"""Which files of an input are looked at, and how they are told apart."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from paceline.errors import InputError
from paceline_service.importers import opening, walk
from paceline_service.importers.faults import Faults
from paceline_service.importers.progress import Progress
from paceline_service.importers.sources import analyze_paths
from paceline_service.importers.walk import find_files
from tests.unit.importers.flight_dumps import dumps_of
from tests.unit.importers.flight_dumps import write as write_dumps
from tests.unit.importers.logs import small_job, text, write
from tests.unit.importers.traces import TraceJob, traces, write_traces


def names(paths: list[Path], faults: Faults | None = None) -> list[str]:
    return [file.path.name for file in find_files(paths, faults or Faults())]


def test_folders_are_searched_and_what_is_hidden_is_not(tmp_path: Path) -> None:
    for place in ("b", "rank0/a", ".git/x", "rank0/.hidden", "rank1/deep/c"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    assert names([tmp_path]) == ["b", "a", "c"]


def test_a_link_that_leads_back_ends_and_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    (tmp_path / "in" / "up").symlink_to(tmp_path)
    (tmp_path / "in" / "self").symlink_to(tmp_path / "in")
    (tmp_path / "b").symlink_to(tmp_path / "in" / "a")
    os.link(tmp_path / "in" / "a", tmp_path / "in" / "c")
    assert names([tmp_path]) == ["b"]
    assert names([tmp_path, tmp_path / "in" / "a"]) == ["a"], "the name that the user gave"


def test_a_link_to_nowhere_and_a_pipe_are_told_and_never_opened(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a").touch()
    faults = Faults()
    assert names([tmp_path], faults) == ["a"]
    assert faults.counts == {"skipped_file": 2}
    assert not faults.lossy
    with pytest.raises(InputError, match="is no regular file; write what comes out of it"):
        find_files([tmp_path / "pipe"], Faults())
    with pytest.raises(InputError, match="is no regular file"):
        find_files([Path("/dev/zero")], Faults())


def test_depth_and_number_of_files_have_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path
    for level in range(walk.MAX_DEPTH + 2):
        deep = deep / str(level)
        deep.mkdir()
        (deep / "file").touch()
    faults = Faults()
    assert len(find_files([tmp_path], faults)) == walk.MAX_DEPTH
    assert faults.counts == {"skipped_file": 1}
    monkeypatch.setattr(walk, "MAX_FILES", 3)
    with pytest.raises(InputError, match="over 3 files"):
        find_files([tmp_path], Faults())


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        find_files([tmp_path / "nowhere"], Faults())
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="below does not exist"):
        find_files([tmp_path / "file" / "below"], Faults())


def tar_of(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def zip_of(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, content)
    return packed.getvalue()


NOBODY = 65534
LOG = text(small_job(2, steps=3))


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (tar_of("a.ndjson", LOG), r"a tar archive; unpack it first \(tar -xf\)"),
        (gzip.compress(tar_of("a.ndjson", LOG)), r"a tar archive; unpack it first \(tar -xf\)"),
        (zip_of("a.ndjson", LOG), r"a zip archive; unpack it first \(unzip\)"),
        (b"\x28\xb5\x2f\xfd\x24\x00", r"packed by zstd; unpack it first \(zstd -d\)"),
        (gzip.compress(gzip.compress(LOG)), r"packed by gzip twice; unpack it first \(gunzip\)"),
        (gzip.compress(b"PAR1" + bytes(60)), r"packed by gzip, .*unpack it first \(gunzip\)"),
        (b'{"schema": "paceline.report/1"}', "a report of Paceline; give what it was made from"),
    ],
    ids=["tar", "tar.gz", "zip", "zstd", "gzip twice", "Parquet in gzip", "report"],
)
def test_what_has_to_be_unpacked_first_is_told_with_the_command(
    tmp_path: Path, content: bytes, advice: str
) -> None:
    path = tmp_path / "all.data"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"all\.data is {advice}"):
        analyze_paths([path])
    with pytest.raises(InputError, match=rf"holds no file of a known format.*{advice}"):
        analyze_paths([tmp_path])
    write(tmp_path / "log.ndjson", small_job(2, steps=3))
    answer = analyze_paths([tmp_path])
    assert len(answer.faults.notes()) == 1
    assert answer.report["job"]["steps"] == 3


@pytest.mark.parametrize(
    ("content", "reason", "problem"),
    [
        (b"", "unusable_file", "empty"),
        (gzip.compress(LOG)[:12], "unusable_file", "a gzip file that breaks off"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 60, "unusable_file", "a gzip file that is damaged"),
        ('{"traceEvents": []}'.encode("utf-16"), "encoding", "UTF-16; convert it first: iconv"),
    ],
    ids=["empty", "cut off", "damaged", "UTF-16"],
)
def test_what_looks_like_the_trace_of_a_rank_and_cannot_be_read_is_a_loss(
    tmp_path: Path, content: bytes, reason: str, problem: str
) -> None:
    write_traces(tmp_path, traces(TraceJob(slow=1)))
    (tmp_path / "rank4.json").write_bytes(content)
    answer = analyze_paths([tmp_path])
    assert answer.report["findings"][0]["ranks"] == [1]
    assert answer.report["data"]["dropped"] == {reason: 1}
    assert any(f"rank4.json: left out: {problem}" in note for note in answer.faults.notes())
    with pytest.raises(InputError, match=f"rank4.json is {problem}"):
        analyze_paths([tmp_path, tmp_path / "rank4.json"])


def test_an_empty_file_that_is_like_no_trace_is_no_loss(tmp_path: Path) -> None:
    write_traces(tmp_path, traces(TraceJob(slow=1)))
    (tmp_path / "DONE").touch()
    (tmp_path / "notes.txt").write_text("Größe", encoding="utf-16")
    answer = analyze_paths([tmp_path])
    assert answer.report["data"]["complete"]
    assert answer.faults.counts == {"skipped_file": 2}


@pytest.fixture
def as_a_user() -> Iterator[Path]:
    """A folder, and rights that do not open every file: root's would."""
    root = os.geteuid() == 0
    with TemporaryDirectory() as name:
        if root:
            os.chown(name, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            if root:
                os.seteuid(0)


def test_a_file_that_must_not_be_read_is_told_by_name(as_a_user: Path) -> None:
    write_traces(as_a_user, traces(TraceJob(slow=1)))
    path = as_a_user / "rank4.json"
    path.write_text("{}")
    path.chmod(0)
    answer = analyze_paths([as_a_user])
    (note,) = answer.faults.notes()
    assert "rank4.json: left out: cannot be read: Permission denied" in note
    assert answer.report["data"]["dropped"] == {"unusable_file": 1}
    with pytest.raises(InputError, match=r"rank4\.json cannot be read: Permission denied"):
        analyze_paths([path])


class Removing(Progress):
    """Takes a file away once all are recognised, before they are read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def expects(self, paths: Sequence[Path], packed_bytes: int) -> None:
        assert self._path in paths
        self._path.unlink()


def test_a_file_that_goes_before_it_is_read_is_told_and_the_others_are_read(
    tmp_path: Path,
) -> None:
    paths = write_traces(tmp_path, traces(TraceJob(slow=1)))
    answer = analyze_paths([tmp_path], Removing(paths[3]))
    assert answer.report["job"]["ranks_observed"] == 3
    assert not answer.report["data"]["complete"]
    assert any("rank3.json" in note for note in answer.faults.notes())
    with pytest.raises(InputError, match=r"rank0\.json does not exist"):
        analyze_paths([paths[0]], Removing(paths[0]))
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs" / "0.ndjson", small_job(2, steps=3))
    write(tmp_path / "logs" / "1.ndjson", small_job(2, steps=3))
    answer = analyze_paths([tmp_path / "logs"], Removing(tmp_path / "logs" / "1.ndjson"))
    assert answer.report["job"]["ranks_observed"] == 2
    assert any("1.ndjson" in note for note in answer.faults.notes())


def test_a_mark_of_utf8_is_no_fault_in_any_format(tmp_path: Path) -> None:
    dumps = write_dumps(tmp_path, dumps_of(), form="json")
    for path in dumps:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert analyze_paths([tmp_path]).report["verdict"] == "hang"


def test_a_bomb_of_any_format_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_ALWAYS_UNPACKED_BYTES", 1 << 16)
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(b"step 1 of 2, all is well, loss 1.0\n" * 300_000))
    with opening.open_binary(path) as file, pytest.raises(OSError, match="over 300 times its size"):
        file.read()


def test_folders_that_may_be_two_runs_are_told(tmp_path: Path) -> None:
    for name, first_step in (("monday", 10), ("tuesday", 60)):
        (tmp_path / name).mkdir()
        job = TraceJob(slow=1, steps=20, first_step=first_step, seed=first_step)
        write_traces(tmp_path / name, traces(job))
    answer = analyze_paths([tmp_path])
    assert answer.report["job"]["steps"] == 40
    assert not answer.faults.lossy
    (note,) = answer.faults.notes()
    assert "monday: has 4 files of the same names as" in note
    assert "tuesday; all were taken to be of one run: give one folder if they are not" in note
