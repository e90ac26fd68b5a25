"""How long to wait before something that failed is tried again.

Owns the arithmetic: doubled with each failure in a row, up to a limit. Who counts the failures
knows what may be tried again, and how often.
"""

from __future__ import annotations

#: 2.0 to a power above 1023 is no float; after so many doublings every limit is long reached.
MOST_DOUBLINGS = 1000


def backoff_seconds(failures: int, first_seconds: float, limit_seconds: float) -> float:
    """Return the wait after so many failures in a row.

    Parameters
    ----------
    failures : int
        Failures so far, >= 1; as many as there may ever be.
    first_seconds : float
        The wait after the first of them, >= 0.
    limit_seconds : float
        The longest wait.

    Returns
    -------
    float
        first * 2 ** (failures - 1), at most the limit.

    Examples
    --------
    >>> [backoff_seconds(n, 0.5, 30.0) for n in (1, 2, 3, 6, 7)]
    [0.5, 1.0, 2.0, 16.0, 30.0]

    A day of refusals, one every 30 s, is 2,880 failures:

    >>> backoff_seconds(2_880, 0.5, 30.0)
    30.0
    """
    return float(min(first_seconds * 2.0 ** min(failures - 1, MOST_DOUBLINGS), limit_seconds))
