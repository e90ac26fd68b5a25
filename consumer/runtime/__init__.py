"""The running worker: everything put together, and the one loop that drives it.

``worker`` is the composition root, ``driver`` the loop that turns what happens into events and
carries commands out; ``host`` is the container's memory, ``signals`` and ``watchdog`` are the end.
``recording`` writes the events to a file, ``replay`` plays one through the core again. Decides
nothing about records.
"""
