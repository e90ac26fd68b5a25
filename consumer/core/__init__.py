"""The core: events in, commands out. No clock, no threads, no Kafka, no files, no randomness.

Here is every decision, and nothing that acts. A record comes as ``Fetched``, is let in by
``admission``, charged in the ``ledger``, put into a chunk by ``dispatch``, and ended by
``completion``; ``measuring`` learns from it on the way, and ``supervision`` keeps the processes.
``flow`` says who hears of what; ``limits``, ``status`` and ``reasons`` are tables.
"""
