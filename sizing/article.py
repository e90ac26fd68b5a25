"""The articles' own formulas, as they stand, beside the ones that the worker uses.

Owns the two bounds of *Sizing a Prefetch Window for Mixed Geometry Payloads*. The worker computes
with none of it: the documentation and the tests derive the article's figures from it again, and
``sizing.bounds`` is what holds.

Rules, and how the worker's differ:

- Everything in flight is decoded at once. Here most of it waits as raw bytes, so memory lets more
  in; the stricter figure is in every sizing (``all_decoded_bound_vertices``).
- One process works, at one speed, and its time is the vertices' alone. Here classes of records
  have rates of their own, and processes, chains and the parent enter.
- Only the poll interval limits the drain. Here a stop's grace does as well.
- Results are cut to whole vertices: a bound is never rounded up.
"""

from __future__ import annotations


def article_memory_bound_vertices(available_bytes: float, bytes_per_vertex: float) -> int:
    """Return the article's memory bound: everything in flight decoded at once.

    Parameters
    ----------
    available_bytes : float
        What payloads in flight may take, >= 0.
    bytes_per_vertex : float
        Of a decoded payload, > 0.

    Returns
    -------
    int
        Vertices.

    Notes
    -----
    Units: bytes / (bytes / vertex) = vertices.

    Source
    ------
    "Sizing a Prefetch Window for Mixed Geometry Payloads", ``recommend``.

    Examples
    --------
    >>> article_memory_bound_vertices(2 * 1024**3, 140.0)
    15339168
    """
    return int(available_bytes / bytes_per_vertex)


def article_deadline_bound_vertices(
    vertices_per_second: float, max_poll_interval_seconds: float, headroom_ratio: float
) -> int:
    """Return the article's deadline bound for one process.

    Parameters
    ----------
    vertices_per_second : float
        Measured speed of the handler, >= 0.
    max_poll_interval_seconds : float
        After which the group takes the partitions of a silent member.
    headroom_ratio : float
        Share of the interval that work in flight may take, in (0, 1].

    Returns
    -------
    int
        Vertices.

    Notes
    -----
    Units: vertices / second * seconds = vertices.

    Source
    ------
    "Sizing a Prefetch Window for Mixed Geometry Payloads", ``recommend``.

    Examples
    --------
    >>> article_deadline_bound_vertices(140_000.0, 30.0, 0.5)
    2100000
    """
    return int(vertices_per_second * max_poll_interval_seconds * headroom_ratio)
