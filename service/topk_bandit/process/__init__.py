"""The processes of the service: settings, supervisor, workers, logs and metrics."""
