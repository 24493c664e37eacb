"""What one asks about an attempt later: written at its start, shown and compared by `rankside snapshot`."""
