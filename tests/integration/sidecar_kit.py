"""Real writer processes, real sidecar processes, and a small real collector for their tests."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from paceline.wire.bundle_codec import decode_any, frames_of
from paceline.wire.bundles import Bundle
from paceline.wire.codec import Rejected, split_frames
from paceline.wire.columns import decode
from paceline.wire.frames import Frame

TOKEN = "a-token-that-must-not-be-logged"

WRITER = """
import os, sys, time
from pathlib import Path
from paceline.clock import boot_id, time_namespace
from paceline.ring import RingWriter, new_identity
from paceline.vocabulary import Op, Phase, RecordKind

directory, rank, world, total, per_s, end = sys.argv[1:7]
rank, world, total, per_s = int(rank), int(world), int(total), float(per_s)
identity = new_identity(
    job=os.environ.get("JOB", "job-a"), run_id="run-1", attempt=0, rank=rank, local_rank=rank,
    world_size=world,
    node="node-a", boot_id=boot_id(), time_namespace=time_namespace(), producer="test")
capacity = int(os.environ.get("CAPACITY", "16384"))
ring = RingWriter(Path(directory), identity, capacity)
ring.meta({"group": 0, "name": "dp", "ranks": f"0-{world - 1}" if world > 1 else "0", "epoch": 0,
           "mesh_dim": "dp", "backend": "gloo"})
ring.meta({"torch": "9.9"})
print(ring.path, flush=True)
for seq in range(total):
    now_ns = time.monotonic_ns()
    slot = ring.begin(int(Op.ALL_REDUCE), 0, seq, seq // 10, -1, 4096, now_ns)
    if end != "pending" or seq < total - 1:
        ring.finish(slot)
        ring.record(int(RecordKind.COLLECTIVE), int(Op.ALL_REDUCE), 0, seq, seq // 10, -1, 4096,
                    now_ns, now_ns + 1000, now_ns + 10, now_ns)
    ring.heartbeat(seq // 10)
    if per_s:
        time.sleep(1 / per_s)
print("written", flush=True)
if end == "close":
    ring.close()
else:
    time.sleep(60)
"""


@dataclass
class Got:
    """What the collector was sent, as its database would count it."""

    frames: dict[tuple[str, int], Frame] = field(default_factory=dict)
    """By incarnation and number; those that came in bundles too."""
    sent: set[tuple[str, int]] = field(default_factory=set)
    duplicates: int = 0
    posts: int = 0
    tokens: set[str] = field(default_factory=set)

    def sequences(self, rank: int = 0) -> list[int]:
        """Every collective's seq of a rank, in order of the frames."""
        found: list[int] = []
        for (_, _), frame in sorted(self.frames.items()):
            if frame.rank == rank:
                found += decode(frame.columns["seq"], frame.count)
        return found

    def ended(self) -> list[str]:
        return [frame.ended for frame in self.frames.values() if frame.ended]

    def dropped(self) -> dict[str, int]:
        newest = max(self.frames.items(), default=None, key=lambda item: item[0][1])
        return dict(newest[1].dropped) if newest else {}

    def facts(self) -> dict[str, str]:
        """What the frames told of the process, newest last."""
        frames = sorted(self.frames.items(), key=lambda item: item[0][1])
        return {key: value for _, frame in frames for key, value in frame.info.items()}


class FakeCollector:
    """Listens on a port of its own; ``answer`` may replace what it says to a POST."""

    def __init__(self, port: int = 0) -> None:
        self.got = Got()
        self.lock = threading.Lock()
        self.connections: list[socket.socket] = []
        self.answer: Callable[[bytes], tuple[int, dict[str, str], Any] | None] = lambda body: None
        kit = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with kit.lock:
                    kit.got.posts += 1
                    kit.got.tokens.add(self.headers.get("Authorization", ""))
                    status, headers, content = kit.answer(body) or kit.store(body)
                data = json.dumps(content).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def get_request(self) -> tuple[socket.socket, Any]:
                connection, address = super().get_request()
                kit.connections.append(connection)
                return connection, address

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a sidecar that is killed in the middle of a POST

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def store(self, body: bytes) -> tuple[int, dict[str, str], Any]:
        accepted = duplicate = 0
        for part in split_frames(body):
            assert not isinstance(part, Rejected), part
            sent = decode_any(part)
            if (sent.incarnation, sent.frame_seq) in self.got.sent:
                duplicate += 1
                self.got.duplicates += 1
                continue
            accepted += 1
            self.got.sent.add((sent.incarnation, sent.frame_seq))
            for frame in frames_of(sent) if isinstance(sent, Bundle) else [sent]:
                key = (frame.incarnation, frame.frame_seq)
                assert key not in self.got.frames, "a frame came in two bundles"
                self.got.frames[key] = frame
        return 200, {}, {"accepted": accepted, "duplicate": duplicate, "rejected": []}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        for connection in self.connections:  # as when the process dies
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.thread.join()

    def __enter__(self) -> FakeCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Processes:
    """Starts processes and leaves none behind."""

    def __init__(self, directory: Path) -> None:
        self.runtime_dir = directory / "rings"
        self.log = directory / "sidecar.log"
        self._started: list[subprocess.Popen[str]] = []

    def writer(
        self,
        *,
        rank: int = 0,
        world: int = 1,
        total: int = 1000,
        per_s: float = 0,
        end: str = "close",
        capacity: int = 16384,
        job: str = "job-a",
    ) -> subprocess.Popen[str]:
        arguments = [str(self.runtime_dir), str(rank), str(world), str(total), str(per_s), end]
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CAPACITY": str(capacity), "JOB": job},
        )
        self._started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    def sidecar(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        with open(self.log, "a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "paceline.sidecar", "--runtime-dir", str(self.runtime_dir),
                 "--interval-s", "0.05", *arguments],
                stderr=log,
                text=True,
                env={**os.environ, "PACELINE_TOKEN": TOKEN, **environ},
            )  # fmt: skip
        self._started.append(process)
        return process

    def stop(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def wait_until(condition: Callable[[], bool], timeout_s: float = 40.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.02)
