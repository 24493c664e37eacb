"""A run forwarded by hand, later or elsewhere: what is forwarded, the processes, the show."""
