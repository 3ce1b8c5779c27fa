"""HTA over a directory of traces: what its documentation offers for stragglers and communication.

Run by the interpreter of HTA's own environment.
"""

import json
import sys
import warnings

warnings.filterwarnings("ignore")

from hta.trace_analysis import TraceAnalysis  # noqa: E402

traces = TraceAnalysis(trace_dir=sys.argv[1])
print(traces.get_comm_comp_overlap(visualize=False))
print(json.dumps({"ranks": [int(rank) for rank in traces.get_potential_stragglers()]}))
