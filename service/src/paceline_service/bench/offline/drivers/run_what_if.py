"""ByteDance's analyzer as its run_all.sh runs it, without the pictures: S, then M_S, then M_W.

Run by the interpreter of its own environment; one process for all three, to its advantage.
"""

import json
import os
import runpy
import sys

checkout, metadata, trace, out = sys.argv[1:]
sys.path[:0] = [checkout, f"{checkout}/analyzer"]
name = os.path.basename(trace).removeprefix("trace-").removesuffix(".parquet")
result = f"{out}/{name}.json"
analyzer = f"{checkout}/analyzer"
more = ["--trial", name, "--dump-dir", out, "--analysis-result", result, "--root", out]
for script, words in (
    ("wia", ["--metadata", metadata, "--trace", trace, "--dump-dir", out, "--root", out]),
    ("compute_ms", more),
    ("compute_mw", more),
):
    sys.argv = [f"{analyzer}/{script}.py", *words]
    runpy.run_path(sys.argv[0], run_name="__main__")
told = {}
for key, path, field in (
    ("S", result, "blocking_slowdown"),
    ("M_S", f"{out}/ms-{name}.json", "Ms"),
    ("M_W", f"{out}/mw-{name}.json", "Mw"),
):
    with open(path) as file:
        told[key] = json.load(file)[field]
print(json.dumps(told))
