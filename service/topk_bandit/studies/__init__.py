"""Studies: the fold of a log into a model, designs in the background, and the use cases."""
