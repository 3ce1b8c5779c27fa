"""The hooks on collectives in C++: the same rules as ``collectives.py``, at a tenth of the cost.

Nothing needs it. Where there is no library for this torch, the Python hooks serve
(docs/native-hook.md).
"""
