"""Ticks in, tables out, exactly once."""
