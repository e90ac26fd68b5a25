"""A demonstration on one machine: a broker, traffic, the real worker, and a full account.

Owns the story that is told and how it is shown. The worker is a process of its own, started as a
user starts it; what is shown is what it exports, and what is proved is read from the broker and
from what the handlers wrote down. Needs no packages but the worker's own.
"""

from __future__ import annotations
