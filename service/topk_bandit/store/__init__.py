"""The logs of bandits and studies: `log` and `study_log` have the promises, `memory` and `redis` the stores."""
