"""The formats that the original has written over time: which one a file has, and how each is read."""
