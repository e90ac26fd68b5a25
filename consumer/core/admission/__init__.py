"""Admission: what was fetched and may be charged, how much to fetch next, and when to pause.

A run comes in through ``admission.queue``, waits there, and leaves as a charge in the ledger; it
does not come back. ``costs`` prices its prefixes, ``fetching`` asks for the next, ``pausing`` and
``own_pauses`` hold partitions back. What refuses is a row of ``core.limits``. Nothing here knows
processes.
"""
