"""Handler processes: children that run the user's handler, and the pool that feeds them.

``pool`` and ``process`` are the parent's side, ``child`` the other; ``wire`` is what they say to
each other, and ``slots`` the shared memory in which records travel. In a child, ``attempts`` calls
the handler that ``loader`` found, and ``measure`` times it. When a process is started or killed is
decided by the core.
"""
