"""The ledger: what is in flight, as objects (pieces, chains, runs) and as sums of integers.

``columns`` are the records, ``in_flight`` the objects that hold them, ``pieces`` every write to
these, ``ledger`` the sums and their value, ``counts`` what a set of records adds up to. A record
is here from its admission until it is settled or let go. Nothing here decides.
"""
