"""Values of bandits and of studies, the errors of all packages, and hooks: no rules of any other package."""
