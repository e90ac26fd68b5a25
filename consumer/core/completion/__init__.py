"""Completion: what becomes of records, and what may be committed.

``settlement`` reads what a process says of a chunk, or leaves behind when it dies; ``deliveries``
waits until the broker has what was produced; ``ownership`` keeps the epochs of partitions, their
committed ends, and how they are given back. A record leaves the core here; one that is tried
again goes back to its chain, and from there to dispatch.
"""
