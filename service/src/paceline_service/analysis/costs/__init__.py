"""What a step should cost: closed forms, from a machine's numbers to seconds and bytes.

Pure functions of numbers; each is on a page of docs/math with its source. Bandwidth is bytes per
second *out of a rank* everywhere, latency (alpha) seconds per message, sizes bytes. ``units``
reads such numbers from text and refuses those that cannot be meant, ``words`` writes them.
"""
