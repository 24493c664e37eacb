"""What the agent makes of throughput samples: averages, the training line, memory, timers, progress."""
