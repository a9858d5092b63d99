"""What the service does, without a wire: use cases over a store and a learner that follows the log."""
