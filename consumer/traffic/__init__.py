"""Generated and replayed traffic: one source for the commands, the tests and the benchmarks.

Owns what records look like and in which order they come. Everything is decided by a seed. Sends
nothing but what ``sender`` is given; the worker itself imports none of it.
"""

from __future__ import annotations
