"""Tests of the core: generated event sequences, and simulated traffic with hidden true costs."""
