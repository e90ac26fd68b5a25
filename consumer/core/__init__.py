"""The core: events in, commands out. No clock, no threads, no Kafka, no files, no randomness."""
