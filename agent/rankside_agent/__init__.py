"""The agent: one a node, beside the training ranks."""
