"""Coverage-guided fuzzing of one target: ``python -m tests.fuzz.run TARGET --seconds N``.

What it finds is written to ``--artifacts``; move it into ``tests/fuzz/corpus/TARGET`` once it is
understood, and the short run of CI will keep it from coming back.
"""

from __future__ import annotations

import argparse
import importlib
import random
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.targets import NAMES

CORPUS = Path(__file__).parent / "corpus"
TIMEOUT_S = 10
MAX_RSS_MB = 2048
MAX_LEN = 1 << 20


def main() -> int:
    """Fuzz one target in a process of its own, or all, one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=(*NAMES, "all"))
    parser.add_argument("--seconds", type=int, default=60, help="of each target")
    parser.add_argument("--artifacts", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--seed", type=int, default=0, help="0: by the clock")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        return _fuzz(arguments)
    failed = []
    for name in NAMES if arguments.target == "all" else (arguments.target,):
        if not _run(name, arguments):
            failed.append(name)
    if failed:
        print(f"found something in: {', '.join(failed)}; see {arguments.artifacts}")
    return 1 if failed else 0


def _run(name: str, arguments: argparse.Namespace) -> bool:
    found = arguments.artifacts / name
    (found / "corpus").mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    command = [
        sys.executable, "-m", "tests.fuzz.run", name, "--inside",
        "--seconds", str(arguments.seconds), "--artifacts", str(arguments.artifacts),
        "--seed", str(arguments.seed),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    log = done.stdout + done.stderr
    (found / "log.txt").write_text(log)
    runs = re.findall(r"#(\d+)\s", log)
    coverage = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", log)
    reached = "coverage {} features {} corpus {}".format(*coverage[-1]) if coverage else ""
    print(
        f"{name}: {runs[-1] if runs else 0} inputs in {time.monotonic() - began_s:.0f} s, "
        f"{reached}: {'nothing found' if done.returncode == 0 else 'FOUND'}",
        flush=True,
    )
    if done.returncode:
        print("\n".join(log.splitlines()[-40:]), flush=True)
    return done.returncode == 0


def _fuzz(arguments: argparse.Namespace) -> int:
    try:
        import atheris
    except ImportError:
        print("atheris is missing: it needs Python 3.11 or newer; `make setup` installs it")
        return 2
    name = arguments.target
    include = importlib.import_module("tests.fuzz.instrument").PACKAGES[name]
    with atheris.instrument_imports(include=list(include)):
        target = importlib.import_module(f"tests.fuzz.targets.{name}")
    found = arguments.artifacts / name
    for seed, content in target.seeds().items():
        (found / "corpus" / f"seed-{seed}").write_bytes(content)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.15:
            return atheris.Mutate(data, max_size)
        changed = target.mutate(data, rng)
        return changed if len(changed) <= max_size else data

    options = [
        sys.argv[0], str(found / "corpus"), *([str(CORPUS / name)] * (CORPUS / name).is_dir()),
        f"-max_total_time={arguments.seconds}", f"-timeout={TIMEOUT_S}", f"-max_len={MAX_LEN}",
        f"-rss_limit_mb={MAX_RSS_MB}", f"-artifact_prefix={found}/", "-print_final_stats=1",
        f"-seed={arguments.seed}", "-len_control=0",
    ]  # fmt: skip
    atheris.Setup(options, target.check, custom_mutator=mutate)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
