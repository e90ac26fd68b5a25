"""A Kafka stream worker for geospatial payloads that sizes its own backpressure.

At the root is what handler authors import (``batch``, ``handlers``, ``testing``) and what every
folder shares (``calls``, ``errors``, ``version``). What decides is ``core``; what touches the world
is ``kafka``, ``processes``, ``telemetry`` and ``runtime``, which connects them. ``commands`` and
its neighbours are what people run. The way of a record is in docs/architecture.md.
"""
