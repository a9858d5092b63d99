"""The processes of the service: settings, supervisor, workers, logs and metrics.

One supervisor starts the workers and starts them again when they die; each worker answers calls. Nothing here computes
a model or reads a message of the wire.
"""
