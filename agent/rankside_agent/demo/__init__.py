"""The example training, and the means to check what rankside made of it: `rankside demo` runs both."""
