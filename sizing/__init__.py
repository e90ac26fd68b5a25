"""How much geospatial work may be in flight: measured cost, two bounds, one budget.

Pure arithmetic and measurement. Imports nothing of ``consumer``, no Kafka, no metrics.
"""
