"""The commands of operators: each asks a service that runs, and prints what it answers."""
