"""A Kafka stream worker for geospatial payloads that sizes its own backpressure."""
