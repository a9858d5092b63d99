"""Values of bandits and of studies, the errors of all rooms, and hooks: no rules of any other room."""
