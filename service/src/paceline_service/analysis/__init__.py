"""Pure maths from records to a verdict: no I/O, no clock, no log.

``job`` takes records through ``matching`` (which belong together), ``blame`` (who waited for
whom) and ``evidence`` (is it chance?). ``network``, ``kinds`` and ``standstill`` look for what
is no slow rank, ``causes`` say why, ``whatif`` what it costs; ``verdict`` decides.
"""
