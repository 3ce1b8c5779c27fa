"""What an answer would have needed, from the figures of a report alone."""

from __future__ import annotations

from paceline_service.export.words import Json, clean, ranks_in_words


def what_is_missing(report: Json) -> list[str]:
    """Return what a report without a verdict and without notes lacks, in sentences."""
    job: Json = report.get("job") or {}
    world_size, observed = job.get("world_size") or 0, job.get("ranks_observed") or 0
    sentences = []
    if observed < world_size:
        sentences.append(f"Records of {_absent(report, world_size, observed)}.")
    if not job.get("steps"):
        sentences.append("A complete step: no step ended on every rank.")
    if not job.get("collectives"):
        sentences.append("Collectives: none was seen on all its ranks.")
    return sentences or [f"More steps than the {job.get('steps') or 0:,} seen."]


def what_to_do(report: Json) -> list[str]:
    """Return the next steps towards an answer, the surest first."""
    job: Json = report.get("job") or {}
    world_size, observed = job.get("world_size") or 0, job.get("ranks_observed") or 0
    steps, collectives = job.get("steps") or 0, job.get("collectives") or 0
    timings: Json = (report.get("data") or {}).get("timings") or {}
    if timings.get("times_of_each_rank") is False:
        return [clean(timings.get("remedy"))]
    if world_size == 1:
        return ["A job of one rank has nobody to wait for; profile it instead."]
    recorder: Json = (report.get("data") or {}).get("flight_recorder") or {}
    if recorder.get("remedy"):
        return [clean(recorder["remedy"])]
    todo = []
    own = _is_of_paceline(report)
    if observed < world_size and own:
        todo.append(
            "Give the files of all ranks, or see with `paceline doctor` on the missing ranks' "
            "nodes why they send nothing."
        )
    elif observed < world_size:
        todo.append(f"Give the files of all {world_size:,} ranks; these are of {observed:,}.")
    if observed and not steps and own:
        todo.append("See that an optimizer steps, or call step() on what paceline.init() returns.")
    elif not collectives and own:
        todo.append(
            "See that the job uses torch.distributed and runs under `paceline run` or calls "
            "paceline.init() before it makes its process groups."
        )
    dropped: Json = (report.get("data") or {}).get("dropped") or {}
    lost = [clean(reason) for reason, count in sorted(dropped.items()) if count]
    if lost:
        todo.append(f"Mend what loses records first: {', '.join(lost)}.")
    if not todo and job.get("state"):
        todo.append("Let the job run on and ask again; an answer needs more steps.")
    if not todo:
        todo.append("Record more steps, of all ranks at the same time: 20 to 40 name a clear case.")
    return todo


def _is_of_paceline(report: Json) -> bool:
    """Whether Paceline's own agent recorded it, so that the agent can be mended."""
    sources = (report.get("data") or {}).get("sources") or ()
    return not sources or any(source.get("format") == "event log" for source in sources)


def _absent(report: Json, world_size: int, observed: int) -> str:
    rows = {row["rank"] for row in report.get("ranks") or ()}
    absent = [rank for rank in range(world_size) if rank not in rows]
    # The rows of a report can also hold silent ranks; then only the number is known.
    if len(absent) == world_size - observed:
        return ranks_in_words(absent)
    return f"{world_size - observed:,} of {world_size:,} ranks"
