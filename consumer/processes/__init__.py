"""Handler processes: children that run the user's handler, and the pool that feeds them.

``pool`` is the parent's side and ``child`` the other; ``wire`` is what they say to each other and
``slots`` the shared memory in which the records travel.
"""
