"""Kafka, as the worker uses it: one consumer, one producer, and what they may be told.

Records come in through ``client`` (``gather`` makes columns of them, ``membership`` and
``positions`` know what is ours) and go out through ``producer`` (outputs, and ``dead_letters``);
offsets through ``commits`` and ``last_commit``. ``properties`` is the table of properties. Decides
nothing about records.
"""
