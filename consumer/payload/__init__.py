"""Payloads: raw record values, before and while they become geometries.

The parent only counts (``counting``); a handler process decodes (``decode``). Which formats there
are is one table (``formats``), each of them one module; what is wrong with a value is a ``Fault``.
GeoJSON is read by ``geojson_scan`` and ``coordinates``, for many records at once. Nothing here
knows Kafka, processes or handlers.
"""
