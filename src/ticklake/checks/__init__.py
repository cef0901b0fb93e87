"""Checks of what users give: numbers, times, paths and URLs."""
