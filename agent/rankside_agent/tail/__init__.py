"""What `rankside tail` is made of: find logs, read their ends, follow them, merge, fold and show."""
