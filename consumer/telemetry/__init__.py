"""What the worker shows of itself: metrics, HTTP, the page, logs.

Everything is read from one ``Snapshot`` of the core: ``metrics_table`` and ``metrics`` for
Prometheus, ``explanations`` for ``/budget``, ``page`` for people, ``health`` for probes, ``lag``
from the ends of the logs. ``http`` serves them on threads of its own; ``logs`` writes lines. No
record and no payload comes here.
"""
