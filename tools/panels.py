"""What Grafana's dashboards show: rows of panels, each a question with the queries that answer it.

Every query returns numbers for a service that is called, and none of them is NaN: a quantile or a ratio of nothing is
left out by a comparison, or is 0 where that is the truth. `$job` and the interval are Grafana's variables.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BOARDS", "Board", "Panel", "Row"]


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Attributes
    ----------
    unit
        Grafana's name of it.
    queries
        PromQL, and what its series are called: words, with ``{{label}}`` for a label's value.
    kind
        Grafana's name of the panel's kind.
    exemplars
        Whether single calls are shown as points; of the last query, since all of a panel's have the same.
    """

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one title, in their order."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard; `name` is its file's."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]


def rate(metric: str, labels: str = "", *, by: str = "") -> str:
    """Return the query of a counter's growth per second, summed."""
    selected = f'{{job="$job"{labels and ", "}{labels}}}'
    return f"sum{by and f' by ({by})'} (rate({metric}{selected}[$__rate_interval]))"


def quantile(share: float, metric: str, labels: str = "", *, by: str = "") -> str:
    """Return the query of a histogram's quantile, none where nothing was observed."""
    buckets = rate(f"{metric}_bucket", labels, by=f"{by}{by and ', '}le")
    return f"histogram_quantile({share}, {buckets}) >= 0"


def quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    """Return the queries of a histogram's median, and of what one in twenty and one in a hundred exceeds."""
    return tuple((quantile(share, metric), f"{share:.0%}") for share in (0.5, 0.95, 0.99))


def mean(metric: str, labels: str = "") -> str:
    """Return the query of the mean of what was observed, none where nothing was."""
    return f"{rate(f'{metric}_sum', labels)} / ({rate(f'{metric}_count', labels)} > 0)"


def largest(metric: str, *, by: str = "instance") -> str:
    """Return the query of the largest value of each machine."""
    return f'max by ({by}) ({metric}{{job="$job"}})'


def recorded(rule: str) -> str:
    """Return the query of what a recording rule recorded."""
    return f'{rule}{{job="$job"}}'


def grown(metric: str, *, by: str = "") -> str:
    """Return the query of a counter's growth in the last hour."""
    return f'sum{by and f" by ({by})"} (increase({metric}{{job="$job"}}[1h]))'


OURS = 'grpc_service=~"topk_bandit.*"'
RECOMMEND = 'grpc_method="Recommend"'

WELL = Row(
    "Is it well?",
    (
        Panel(
            "How many alerts fire?",
            "Alerts of topk-bandit that fire now; docs/runbooks.md has what to do about each.",
            "short",
            (('sum(ALERTS{alertname=~"TopkBandit.*", alertstate="firing"}) or vector(0)', "alerts"),),
            "stat",
        ),
        Panel(
            "How many workers take calls?",
            "Worker processes that serve and give signs of life, of all machines, beside how many there should be.",
            "short",
            (
                ('sum(topk_bandit_workers_ready{job="$job"})', "ready"),
                ('sum(topk_bandit_workers{job="$job"})', "wanted"),
            ),
            "stat",
        ),
        Panel(
            "How many errors did the last hour have?",
            "Share of calls that failed by the service's fault; the objective is 0.1 % over 30 days.",
            "percentunit",
            ((recorded("job:grpc_server_handled:error_ratio_rate1h"), "errors"),),
            "stat",
        ),
        Panel(
            "How many slates were slow in the last hour?",
            "Share of Recommend calls that took over 50 ms; the objective is 1 % over 30 days.",
            "percentunit",
            ((recorded("job:grpc_server_handling_seconds:slow_ratio_rate1h"), "slow"),),
            "stat",
        ),
    ),
)

CALLS = Row(
    "Calls",
    (
        Panel(
            "How many calls come?",
            "Calls that arrived, by method, over gRPC and HTTP.",
            "reqps",
            ((f"{rate('grpc_server_started_total', OURS, by='grpc_method')} > 0", "{{grpc_method}}"),),
        ),
        Panel(
            "Which errors do callers get?",
            "Calls that were not answered with OK, by status. UNAVAILABLE is the store or a shutdown, INTERNAL a bug.",
            "reqps",
            ((rate("grpc_server_handled_total", f'{OURS}, grpc_code!="OK"', by="grpc_code"), "{{grpc_code}}"),),
        ),
        Panel(
            "What is refused?",
            "Share of each method's calls that are refused with RESOURCE_EXHAUSTED: too many at once, a "
            "quota, a full store.",
            "percentunit",
            ((recorded("job_method:grpc_server_handled:refused_ratio5m"), "{{grpc_method}}"),),
        ),
        Panel(
            "Which quotas are used up?",
            "Calls that are refused because a tenant has used up a quota, by quota.",
            "reqps",
            ((rate("topk_bandit_quota_refusals_total", by="quota"), "{{quota}}"),),
        ),
        Panel(
            "Who calls?",
            "Calls about the tenants that --metrics-tenants names, and about all others; nothing where it names none.",
            "reqps",
            ((rate("topk_bandit_tenant_calls_total", by="tenant"), "{{tenant}}"),),
        ),
        Panel(
            "Who keeps the workers busy?",
            "Time that calls about each of these tenants took, in seconds each second: how many are under way at once.",
            "short",
            ((rate("topk_bandit_tenant_call_seconds_total", by="tenant"), "{{tenant}}"),),
        ),
        Panel(
            "How long do calls take?",
            "What one in a hundred calls exceeds, by method, from a call's arrival to its answer.",
            "s",
            ((quantile(0.99, "grpc_server_handling_seconds", OURS, by="grpc_method"), "{{grpc_method}}"),),
        ),
        Panel(
            "How long does a slate take?",
            "Quantiles of the time of Recommend calls; a point is a call, with its recommendation's id.",
            "s",
            tuple(
                (quantile(share, "grpc_server_handling_seconds", RECOMMEND), f"{share:.0%}")
                for share in (0.5, 0.95, 0.99)
            ),
            exemplars=True,
        ),
        Panel(
            "Where does the time of a call go?",
            "Means: waiting for its turn and handling messages (all calls), choosing a slate, recording it "
            "in the store.",
            "s",
            (
                (mean("topk_bandit_call_phase_seconds", 'phase="queue"'), "queue"),
                (mean("topk_bandit_call_phase_seconds", 'phase="encode"'), "encode"),
                (mean("topk_bandit_decision_seconds"), "decide"),
                (mean("topk_bandit_store_seconds", 'operation="record_recommendation"'), "store"),
            ),
        ),
        Panel(
            "How many slates are degraded?",
            "Share of slates that are given out unrecorded because the store is away; nothing is learned from them.",
            "percentunit",
            ((recorded("job:topk_bandit_degraded:ratio2m"), "degraded"),),
        ),
        Panel(
            "How late is the event loop?",
            "What one in a hundred wake-ups of a worker's event loop exceeds; every call waits for it as long.",
            "s",
            ((recorded("job_instance:topk_bandit_event_loop_lag_seconds:p99_5m"), "{{instance}}"),),
        ),
        Panel(
            "Do tasks pile up?",
            "Tasks of the event loop, of the worker that has most; they come and go with calls and bandits.",
            "short",
            ((largest("topk_bandit_tasks"), "{{instance}}"),),
        ),
    ),
)

GAIN = Row(
    "Is it learning?",
    (
        Panel(
            "What do slates earn?",
            "Mean of the rewards accepted, in reward units, mixed over all bandits; GetBanditStats has each "
            "bandit's own.",
            "short",
            ((mean("topk_bandit_reward_value"), "mean reward"),),
        ),
        Panel(
            "How much better could slates be?",
            "Mean regret of the slates given out since two rewards differed, in reward units: the model's estimate, "
            "and a bound on it.",
            "short",
            (
                (recorded("job:topk_bandit_estimated_regret:mean5m"), "estimate"),
                (recorded("job:topk_bandit_regret_bound:mean5m"), "bound"),
            ),
        ),
        Panel(
            "How are slates chosen?",
            "Slates by what they were chosen for: to earn (exploited), to learn (explored), or because too "
            "few items were left (baseline).",
            "reqps",
            ((rate("topk_bandit_exploration_total", by="mode"), "{{mode}}"),),
        ),
        Panel(
            "How long does a decision take?",
            "Quantiles of the time to choose a slate, without the store.",
            "s",
            quantiles("topk_bandit_decision_seconds"),
        ),
    ),
)

REWARDS = Row(
    "Do rewards come?",
    (
        Panel(
            "What becomes of rewards?",
            "Rewards posted, by outcome. Many not_found or invalid ones are a mistake in the shop's code.",
            "reqps",
            ((rate("topk_bandit_rewards_total", by="outcome"), "{{outcome}}"),),
        ),
        Panel(
            "How many slates get a reward?",
            "Rewards accepted per slate given out, over an hour: true where calls come evenly over the time "
            "that rewards take.",
            "percentunit",
            ((recorded("job:topk_bandit_rewards:join_ratio1h"), "joined"),),
        ),
        Panel(
            "How many rewards are late?",
            "Share of rewards that came after their slate's reward_wait, over an hour; they are not learned.",
            "percentunit",
            ((recorded("job:topk_bandit_rewards:late_ratio1h"), "late"),),
        ),
        Panel(
            "How many slates end without a reward?",
            "Slates whose deadline passed without a reward, per second.",
            "reqps",
            ((rate("topk_bandit_expired_total"), "expired"),),
        ),
        Panel(
            "How much of what is learned is a default?",
            "Share of default rewards in what models learn, over an hour.",
            "percentunit",
            ((recorded("job:topk_bandit_defaults:ratio1h"), "defaults"),),
        ),
        Panel(
            "How long do rewards take?",
            "Quantiles of the time from a recommendation to its reward; a reward_wait should be longer than "
            "nearly all.",
            "s",
            quantiles("topk_bandit_reward_delay_seconds"),
            exemplars=True,
        ),
    ),
)

FOLDING = Row(
    "Do models keep up?",
    (
        Panel(
            "How many events do models lack?",
            "Events of the log, as it was read last, that the worst model of each machine has not folded.",
            "short",
            ((largest("topk_bandit_learner_lag_events"), "{{instance}}"),),
        ),
        Panel(
            "How old are models?",
            "How long the oldest event that a model lacks has waited (0 when none is known), and how long a "
            "log has not been read: up to half a minute when idle.",
            "s",
            (
                (largest("topk_bandit_model_age_seconds"), "{{instance}} lacks an event for"),
                (largest("topk_bandit_log_unread_seconds"), "{{instance}} has not read for"),
            ),
        ),
        Panel(
            "How much is folded?",
            "Events that are folded into models per second; each worker folds the log of each bandit that it serves.",
            "ops",
            ((rate("topk_bandit_folded_events_total", by="instance"), "{{instance}}"),),
        ),
        Panel(
            "How long does folding take?",
            "Quantiles of the time to fold what was read of a log at once.",
            "s",
            quantiles("topk_bandit_fold_seconds"),
        ),
        Panel(
            "How long do refits take?",
            "Quantiles of the time to fold an event that ended in a refit; they come ever more rarely as a "
            "bandit grows.",
            "s",
            quantiles("topk_bandit_refit_seconds"),
        ),
        Panel(
            "What went wrong in learning?",
            "In the last hour: events that could not be folded, logs that were other ones, models that "
            "differ between workers, snapshots that failed, writes to the cold log that failed.",
            "short",
            tuple(
                (grown(f"topk_bandit_{name}_total"), words)
                for name, words in (
                    ("fold_failures", "folds failed"),
                    ("logs_replaced", "logs replaced"),
                    ("lost_events", "events lost"),
                    ("model_divergences", "models diverged"),
                    ("snapshot_failures", "snapshots failed"),
                    ("cold_log_failures", "cold log not written"),
                )
            ),
        ),
        Panel(
            "How far are models beyond their snapshots?",
            "Events of the worst model that a restart would have to fold again.",
            "short",
            ((largest("topk_bandit_unsaved_events"), "{{instance}}"),),
        ),
        Panel(
            "How old are snapshots?",
            "Age of the oldest bandit's newest snapshot; one that nothing happens to needs no newer one.",
            "s",
            ((largest("topk_bandit_snapshot_age_seconds"), "{{instance}}"),),
        ),
        Panel(
            "How large are snapshots?",
            "Size of the largest bandit's newest snapshot.",
            "bytes",
            ((largest("topk_bandit_snapshot_bytes"), "{{instance}}"),),
        ),
        Panel(
            "What do models know?",
            "Rewards learned from, rows kept, and recommendations that await their reward: sums over the "
            "bandits of a worker.",
            "short",
            (
                (largest("topk_bandit_observations", by="job"), "rewards"),
                (largest("topk_bandit_posterior_rows", by="job"), "rows"),
                (largest("topk_bandit_pending", by="job"), "awaiting"),
            ),
        ),
        Panel(
            "Do requests fit?",
            "Features that were clamped or not declared, and candidates that were passed over; a catalogue "
            "or schema that is out of step.",
            "ops",
            (
                (rate("topk_bandit_odd_features_total", by="kind"), "{{kind}}"),
                (rate("topk_bandit_candidates_passed_over_total"), "passed over"),
                (rate("topk_bandit_relaxed_slates_total"), "rules relaxed"),
                (rate("topk_bandit_rules_clashes_total"), "rules clash"),
            ),
        ),
        Panel(
            "Which rewards are not learned?",
            "Rewards that are far from all others, or whose contexts are. They are learned once others show that "
            "they are usual.",
            "ops",
            ((rate("topk_bandit_outliers_total", by="kind"), "{{kind}}"),),
        ),
        Panel(
            "Does some bandit get no rewards any more?",
            "How many rewards slates since the newest one usually get, of the bandit that misses most.",
            "short",
            (("max(topk_bandit_missing_rewards)", "missing"),),
        ),
        Panel(
            "What becomes of answers to studies?",
            "Answers to studies' questions, by outcome.",
            "reqps",
            ((rate("topk_bandit_answers_total", by="outcome"), "{{outcome}}"),),
        ),
    ),
)

STORE = Row(
    "The store",
    (
        Panel(
            "Does the store answer?",
            "1 while the store answers the look that each machine makes every five seconds.",
            "bool_yes_no",
            ((largest("topk_bandit_store_up"), "{{instance}}"),),
            "stat",
        ),
        Panel(
            "Is the store safe?",
            "Settings that keep the store from keeping what it acknowledges; topk-bandit doctor names them.",
            "short",
            (
                (largest("topk_bandit_store_problems"), "{{instance}}"),
                (largest("topk_bandit_store_replaced"), "{{instance}}: another store"),
            ),
            "stat",
        ),
        Panel(
            "What do acknowledged rewards withstand?",
            "Rewards and corrections by what was achieved of their durability; missed ones were not acknowledged.",
            "ops",
            ((rate("topk_bandit_acknowledgements_total", by="durability"), "{{durability}}"),),
        ),
        Panel(
            "How full is the store?",
            "What the store uses of maxmemory, or of its machine's memory without one; a full store refuses writes.",
            "percentunit",
            ((recorded("job_instance:topk_bandit_store_memory:ratio"), "{{instance}}"),),
        ),
        Panel(
            "How large is the store?",
            "What the store's data take in memory.",
            "bytes",
            ((largest("topk_bandit_store_memory_bytes"), "{{instance}}"),),
        ),
        Panel(
            "What is the store asked?",
            "Calls of the store by operation.",
            "ops",
            ((rate("topk_bandit_store_seconds_count", by="operation"), "{{operation}}"),),
        ),
        Panel(
            "How long do calls of the store take?",
            "What one in a hundred calls of the store exceeds, by operation.",
            "s",
            ((recorded("job_operation:topk_bandit_store_seconds:p99_5m"), "{{operation}}"),),
        ),
        Panel(
            "How many calls of the store fail?",
            "Calls that the store did not answer, or not in time.",
            "ops",
            ((rate("topk_bandit_store_failures_total", by="instance"), "{{instance}}"),),
        ),
        Panel(
            "Did the store's clock jump?",
            "Jumps by over five seconds in the last hour; deadlines follow that clock.",
            "short",
            ((grown("topk_bandit_store_clock_jumps_total"), "jumps"),),
        ),
        Panel(
            "Are bandits damaged?",
            "Bandits that can't be served as their keys in the store are; topk-bandit doctor names them.",
            "short",
            ((largest("topk_bandit_damaged_bandits"), "{{instance}}"),),
            "stat",
        ),
    ),
)

FLEET = Row(
    "The fleet",
    (
        Panel(
            "Which version runs where?",
            "The version of each machine's service.",
            "short",
            ((largest("topk_bandit_build_info", by="instance, version"), "{{instance}} {{version}}"),),
            "stat",
        ),
        Panel(
            "Does an upgrade wait to be finalized?",
            "1 from the start of a version with a newer data version until topk-bandit finalize-upgrade.",
            "bool_yes_no",
            ((largest("topk_bandit_unfinalized_data_versions"), "{{instance}}"),),
            "stat",
        ),
        Panel(
            "Which workers take calls?",
            "Workers that serve, by machine.",
            "short",
            ((largest("topk_bandit_workers_ready"), "{{instance}}"),),
        ),
        Panel(
            "Why were workers replaced?",
            "Workers that died or hung, in the last hour.",
            "short",
            ((grown("topk_bandit_worker_restarts_total", by="instance, reason"), "{{instance}} {{reason}}"),),
        ),
        Panel(
            "Which processes started again?",
            "Time since each process began; it falls to 0 where one was started again.",
            "s",
            (('time() - process_start_time_seconds{job="$job"}', "{{instance}} {{process}}"),),
        ),
        Panel(
            "What do processes take?",
            "Processor time per second: 1 is one core.",
            "short",
            ((rate("process_cpu_seconds_total", by="instance, process"), "{{instance}} {{process}}"),),
        ),
        Panel(
            "How much memory do processes have?",
            "Resident memory of each process; the store is here only if it is the embedded one.",
            "bytes",
            (('process_resident_memory_bytes{job="$job"}', "{{instance}} {{process}}"),),
        ),
        Panel(
            "How many files and connections are open?",
            "Open file descriptors of each process, most of them connections.",
            "short",
            (('process_open_fds{job="$job"}', "{{instance}} {{process}}"),),
        ),
    ),
)

MODELS = Row(
    "Models in memory",
    (
        Panel(
            "How many models are in memory?",
            "Models that a worker has in memory, of the worker that has most.",
            "short",
            ((largest("topk_bandit_models"), "{{instance}}"),),
        ),
        Panel(
            "How much memory do models take?",
            "What the models of the fullest worker take together.",
            "bytes",
            ((largest("topk_bandit_model_memory_bytes"), "{{instance}}"),),
        ),
        Panel(
            "How large is the largest model?",
            "What the largest model takes, beside what one may take.",
            "bytes",
            (
                (largest("topk_bandit_largest_model_bytes"), "{{instance}}"),
                (largest("topk_bandit_model_limit_bytes", by="job"), "limit"),
            ),
        ),
        Panel(
            "Why do models leave memory?",
            "Models that left memory until they are asked for: unused (idle), or to make room (memory).",
            "ops",
            ((rate("topk_bandit_models_rested_total", by="reason"), "{{reason}}"),),
        ),
    ),
)

BOARDS = (
    Board("service", "topk-bandit: service", "Are callers served, how fast, and by what?", (WELL, CALLS)),
    Board(
        "learning", "topk-bandit: learning", "Do slates get better, and do models keep up?", (GAIN, REWARDS, FOLDING)
    ),
    Board("store-and-fleet", "topk-bandit: store and fleet", "What it runs on.", (STORE, FLEET, MODELS)),
)
