"""Measuring: what finished chunks teach, which records a sizing is of, and when one is published.

``learning`` takes in chunks and gives the cost model in force (``call_cost`` is what a call costs
beside its records); ``sampling`` keeps ``window``s of admitted records; ``schedule`` says when and
why; ``reporting`` puts a sizing together. The arithmetic is the package ``sizing``. Records are
counted here and never held.
"""
