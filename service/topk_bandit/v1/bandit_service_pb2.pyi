from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from topk_bandit.v1 import features_pb2 as _features_pb2
from topk_bandit.v1 import recommender_service_pb2 as _recommender_service_pb2
from topk_bandit.v1 import rules_pb2 as _rules_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RewardAggregation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REWARD_AGGREGATION_UNSPECIFIED: _ClassVar[RewardAggregation]
    REWARD_AGGREGATION_FIRST: _ClassVar[RewardAggregation]
    REWARD_AGGREGATION_LAST: _ClassVar[RewardAggregation]
    REWARD_AGGREGATION_SUM: _ClassVar[RewardAggregation]
    REWARD_AGGREGATION_MEAN: _ClassVar[RewardAggregation]
    REWARD_AGGREGATION_MAX: _ClassVar[RewardAggregation]

class OutOfRange(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUT_OF_RANGE_UNSPECIFIED: _ClassVar[OutOfRange]
    OUT_OF_RANGE_REFUSED: _ClassVar[OutOfRange]
    OUT_OF_RANGE_CLAMPED: _ClassVar[OutOfRange]

class Kernel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KERNEL_UNSPECIFIED: _ClassVar[Kernel]
    KERNEL_WEIGHTED_CONVOLUTIONAL: _ClassVar[Kernel]
    KERNEL_CONVOLUTIONAL: _ClassVar[Kernel]
    KERNEL_WEIGHTED: _ClassVar[Kernel]
    KERNEL_ADAPTIVE: _ClassVar[Kernel]

class LiftVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LIFT_VERDICT_UNSPECIFIED: _ClassVar[LiftVerdict]
    LIFT_VERDICT_TOO_EARLY: _ClassVar[LiftVerdict]
    LIFT_VERDICT_UNDECIDED: _ClassVar[LiftVerdict]
    LIFT_VERDICT_BETTER: _ClassVar[LiftVerdict]
    LIFT_VERDICT_WORSE: _ClassVar[LiftVerdict]
REWARD_AGGREGATION_UNSPECIFIED: RewardAggregation
REWARD_AGGREGATION_FIRST: RewardAggregation
REWARD_AGGREGATION_LAST: RewardAggregation
REWARD_AGGREGATION_SUM: RewardAggregation
REWARD_AGGREGATION_MEAN: RewardAggregation
REWARD_AGGREGATION_MAX: RewardAggregation
OUT_OF_RANGE_UNSPECIFIED: OutOfRange
OUT_OF_RANGE_REFUSED: OutOfRange
OUT_OF_RANGE_CLAMPED: OutOfRange
KERNEL_UNSPECIFIED: Kernel
KERNEL_WEIGHTED_CONVOLUTIONAL: Kernel
KERNEL_CONVOLUTIONAL: Kernel
KERNEL_WEIGHTED: Kernel
KERNEL_ADAPTIVE: Kernel
LIFT_VERDICT_UNSPECIFIED: LiftVerdict
LIFT_VERDICT_TOO_EARLY: LiftVerdict
LIFT_VERDICT_UNDECIDED: LiftVerdict
LIFT_VERDICT_BETTER: LiftVerdict
LIFT_VERDICT_WORSE: LiftVerdict

class Bandit(_message.Message):
    __slots__ = ("name", "slate_size", "context_dimension", "item_capacity", "kernel", "exploration", "reward_wait", "default_reward", "create_time", "prior_study", "half_life", "context_schema", "item_schema", "baseline_item_ids", "reward_range", "reward_aggregation", "requires_activation", "durability", "learned_per_second", "provisional_after", "default_item_value", "stage", "control_share", "guardrail_margin", "rules", "conservative_share")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLATE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    ITEM_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    EXPLORATION_FIELD_NUMBER: _ClassVar[int]
    REWARD_WAIT_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_REWARD_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    PRIOR_STUDY_FIELD_NUMBER: _ClassVar[int]
    HALF_LIFE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    ITEM_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    BASELINE_ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    REWARD_RANGE_FIELD_NUMBER: _ClassVar[int]
    REWARD_AGGREGATION_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    LEARNED_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    PROVISIONAL_AFTER_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_ITEM_VALUE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    CONTROL_SHARE_FIELD_NUMBER: _ClassVar[int]
    GUARDRAIL_MARGIN_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    CONSERVATIVE_SHARE_FIELD_NUMBER: _ClassVar[int]
    name: str
    slate_size: int
    context_dimension: int
    item_capacity: int
    kernel: Kernel
    exploration: Exploration
    reward_wait: _duration_pb2.Duration
    default_reward: float
    create_time: _timestamp_pb2.Timestamp
    prior_study: str
    half_life: _duration_pb2.Duration
    context_schema: _features_pb2.FeatureSchema
    item_schema: _features_pb2.FeatureSchema
    baseline_item_ids: _containers.RepeatedScalarFieldContainer[str]
    reward_range: RewardRange
    reward_aggregation: RewardAggregation
    requires_activation: bool
    durability: str
    learned_per_second: int
    provisional_after: _duration_pb2.Duration
    default_item_value: float
    stage: _recommender_service_pb2.Stage
    control_share: float
    guardrail_margin: float
    rules: _containers.RepeatedCompositeFieldContainer[_rules_pb2.SlateRule]
    conservative_share: float
    def __init__(self, name: _Optional[str] = ..., slate_size: _Optional[int] = ..., context_dimension: _Optional[int] = ..., item_capacity: _Optional[int] = ..., kernel: _Optional[_Union[Kernel, str]] = ..., exploration: _Optional[_Union[Exploration, _Mapping]] = ..., reward_wait: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., default_reward: _Optional[float] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., prior_study: _Optional[str] = ..., half_life: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., context_schema: _Optional[_Union[_features_pb2.FeatureSchema, _Mapping]] = ..., item_schema: _Optional[_Union[_features_pb2.FeatureSchema, _Mapping]] = ..., baseline_item_ids: _Optional[_Iterable[str]] = ..., reward_range: _Optional[_Union[RewardRange, _Mapping]] = ..., reward_aggregation: _Optional[_Union[RewardAggregation, str]] = ..., requires_activation: bool = ..., durability: _Optional[str] = ..., learned_per_second: _Optional[int] = ..., provisional_after: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., default_item_value: _Optional[float] = ..., stage: _Optional[_Union[_recommender_service_pb2.Stage, str]] = ..., control_share: _Optional[float] = ..., guardrail_margin: _Optional[float] = ..., rules: _Optional[_Iterable[_Union[_rules_pb2.SlateRule, _Mapping]]] = ..., conservative_share: _Optional[float] = ...) -> None: ...

class RewardRange(_message.Message):
    __slots__ = ("min", "max", "out_of_range", "trusted")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_RANGE_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_FIELD_NUMBER: _ClassVar[int]
    min: float
    max: float
    out_of_range: OutOfRange
    trusted: bool
    def __init__(self, min: _Optional[float] = ..., max: _Optional[float] = ..., out_of_range: _Optional[_Union[OutOfRange, str]] = ..., trusted: bool = ...) -> None: ...

class Exploration(_message.Message):
    __slots__ = ("constant_beta", "schedule_scale", "uniform_share", "near_share", "shares_fall_after")
    CONSTANT_BETA_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_SCALE_FIELD_NUMBER: _ClassVar[int]
    UNIFORM_SHARE_FIELD_NUMBER: _ClassVar[int]
    NEAR_SHARE_FIELD_NUMBER: _ClassVar[int]
    SHARES_FALL_AFTER_FIELD_NUMBER: _ClassVar[int]
    constant_beta: float
    schedule_scale: float
    uniform_share: float
    near_share: float
    shares_fall_after: int
    def __init__(self, constant_beta: _Optional[float] = ..., schedule_scale: _Optional[float] = ..., uniform_share: _Optional[float] = ..., near_share: _Optional[float] = ..., shares_fall_after: _Optional[int] = ...) -> None: ...

class CreateBanditRequest(_message.Message):
    __slots__ = ("bandit",)
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    bandit: Bandit
    def __init__(self, bandit: _Optional[_Union[Bandit, _Mapping]] = ...) -> None: ...

class CreateBanditResponse(_message.Message):
    __slots__ = ("bandit",)
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    bandit: Bandit
    def __init__(self, bandit: _Optional[_Union[Bandit, _Mapping]] = ...) -> None: ...

class GetBanditRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetBanditResponse(_message.Message):
    __slots__ = ("bandit",)
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    bandit: Bandit
    def __init__(self, bandit: _Optional[_Union[Bandit, _Mapping]] = ...) -> None: ...

class ListBanditsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListBanditsResponse(_message.Message):
    __slots__ = ("bandits", "next_page_token")
    BANDITS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    bandits: _containers.RepeatedCompositeFieldContainer[Bandit]
    next_page_token: str
    def __init__(self, bandits: _Optional[_Iterable[_Union[Bandit, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateBanditRequest(_message.Message):
    __slots__ = ("bandit", "update_mask")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    bandit: Bandit
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, bandit: _Optional[_Union[Bandit, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...

class UpdateBanditResponse(_message.Message):
    __slots__ = ("bandit",)
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    bandit: Bandit
    def __init__(self, bandit: _Optional[_Union[Bandit, _Mapping]] = ...) -> None: ...

class ResetBanditRequest(_message.Message):
    __slots__ = ("name", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    request_id: str
    def __init__(self, name: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class ResetBanditResponse(_message.Message):
    __slots__ = ("bandit",)
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    bandit: Bandit
    def __init__(self, bandit: _Optional[_Union[Bandit, _Mapping]] = ...) -> None: ...

class DeleteBanditRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteBanditResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Item(_message.Message):
    __slots__ = ("item_id", "unavailable", "features")
    class FeaturesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _features_pb2.FeatureValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_features_pb2.FeatureValue, _Mapping]] = ...) -> None: ...
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    unavailable: bool
    features: _containers.MessageMap[str, _features_pb2.FeatureValue]
    def __init__(self, item_id: _Optional[str] = ..., unavailable: bool = ..., features: _Optional[_Mapping[str, _features_pb2.FeatureValue]] = ...) -> None: ...

class UpsertItemsRequest(_message.Message):
    __slots__ = ("bandit", "items", "update_mask", "allow_missing")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    ALLOW_MISSING_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    items: _containers.RepeatedCompositeFieldContainer[Item]
    update_mask: _field_mask_pb2.FieldMask
    allow_missing: bool
    def __init__(self, bandit: _Optional[str] = ..., items: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., allow_missing: bool = ...) -> None: ...

class UpsertItemsResponse(_message.Message):
    __slots__ = ("item_count",)
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    item_count: int
    def __init__(self, item_count: _Optional[int] = ...) -> None: ...

class RetireItemsRequest(_message.Message):
    __slots__ = ("bandit", "item_ids")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, bandit: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RetireItemsResponse(_message.Message):
    __slots__ = ("item_count",)
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    item_count: int
    def __init__(self, item_count: _Optional[int] = ...) -> None: ...

class ListItemsRequest(_message.Message):
    __slots__ = ("bandit", "page_size", "page_token")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    page_size: int
    page_token: str
    def __init__(self, bandit: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListItemsResponse(_message.Message):
    __slots__ = ("items", "next_page_token")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Item]
    next_page_token: str
    def __init__(self, items: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetBanditStatsRequest(_message.Message):
    __slots__ = ("bandit",)
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    def __init__(self, bandit: _Optional[str] = ...) -> None: ...

class GetBanditStatsResponse(_message.Message):
    __slots__ = ("log_position", "model_version", "recommendation_count", "observation_count", "default_count", "expiration_count", "late_reward_count", "pending_count", "item_count", "available_item_count", "posterior_row_count", "pending_row_count", "mean_reward", "regret_bound_sum", "estimated_regret_sum", "explored_count", "noise_variance", "prior_variance", "snapshot_position", "memory_bytes", "memory_limit_bytes", "prior_slope", "rank_weight_power", "log_digest", "posterior_digest", "arithmetic", "outlier_count", "pair_scale", "constant_variance", "shared_context", "edges_reached", "context_features", "item_features", "passed_over_count", "place_count", "unplaced_reward_count", "clamped_reward_count", "inactive_count", "lapsed_count", "shown_otherwise_count", "corrected_reward_count", "missed_correction_count", "content_share", "lost_event_count", "lost_reward_count", "imported_count", "forgotten_count", "noticed_change_count", "store_bytes", "set_aside_count", "outlier_context_count", "spread_factor", "has_reward_range", "damage", "selection_share", "reward_times", "shadow", "lift", "log_reach", "rules", "exposures", "conservative")
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_COUNT_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    LATE_REWARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    POSTERIOR_ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    PENDING_ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEAN_REWARD_FIELD_NUMBER: _ClassVar[int]
    REGRET_BOUND_SUM_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_REGRET_SUM_FIELD_NUMBER: _ClassVar[int]
    EXPLORED_COUNT_FIELD_NUMBER: _ClassVar[int]
    NOISE_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    PRIOR_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_POSITION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PRIOR_SLOPE_FIELD_NUMBER: _ClassVar[int]
    RANK_WEIGHT_POWER_FIELD_NUMBER: _ClassVar[int]
    LOG_DIGEST_FIELD_NUMBER: _ClassVar[int]
    POSTERIOR_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARITHMETIC_FIELD_NUMBER: _ClassVar[int]
    OUTLIER_COUNT_FIELD_NUMBER: _ClassVar[int]
    PAIR_SCALE_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    SHARED_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    EDGES_REACHED_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FEATURES_FIELD_NUMBER: _ClassVar[int]
    ITEM_FEATURES_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_COUNT_FIELD_NUMBER: _ClassVar[int]
    PLACE_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNPLACED_REWARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    CLAMPED_REWARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    INACTIVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAPSED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SHOWN_OTHERWISE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CORRECTED_REWARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    MISSED_CORRECTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_SHARE_FIELD_NUMBER: _ClassVar[int]
    LOST_EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOST_REWARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    IMPORTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    NOTICED_CHANGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    STORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_COUNT_FIELD_NUMBER: _ClassVar[int]
    OUTLIER_CONTEXT_COUNT_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FACTOR_FIELD_NUMBER: _ClassVar[int]
    HAS_REWARD_RANGE_FIELD_NUMBER: _ClassVar[int]
    DAMAGE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_SHARE_FIELD_NUMBER: _ClassVar[int]
    REWARD_TIMES_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    LIFT_FIELD_NUMBER: _ClassVar[int]
    LOG_REACH_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    EXPOSURES_FIELD_NUMBER: _ClassVar[int]
    CONSERVATIVE_FIELD_NUMBER: _ClassVar[int]
    log_position: int
    model_version: int
    recommendation_count: int
    observation_count: int
    default_count: int
    expiration_count: int
    late_reward_count: int
    pending_count: int
    item_count: int
    available_item_count: int
    posterior_row_count: int
    pending_row_count: int
    mean_reward: float
    regret_bound_sum: float
    estimated_regret_sum: float
    explored_count: int
    noise_variance: float
    prior_variance: float
    snapshot_position: int
    memory_bytes: int
    memory_limit_bytes: int
    prior_slope: float
    rank_weight_power: float
    log_digest: str
    posterior_digest: str
    arithmetic: str
    outlier_count: int
    pair_scale: float
    constant_variance: float
    shared_context: float
    edges_reached: _containers.RepeatedScalarFieldContainer[str]
    context_features: _containers.RepeatedCompositeFieldContainer[_features_pb2.FeatureStats]
    item_features: _containers.RepeatedCompositeFieldContainer[_features_pb2.FeatureStats]
    passed_over_count: int
    place_count: int
    unplaced_reward_count: int
    clamped_reward_count: int
    inactive_count: int
    lapsed_count: int
    shown_otherwise_count: int
    corrected_reward_count: int
    missed_correction_count: int
    content_share: float
    lost_event_count: int
    lost_reward_count: int
    imported_count: int
    forgotten_count: int
    noticed_change_count: int
    store_bytes: int
    set_aside_count: int
    outlier_context_count: int
    spread_factor: float
    has_reward_range: bool
    damage: str
    selection_share: float
    reward_times: RewardTimes
    shadow: ShadowStats
    lift: Lift
    log_reach: LogReach
    rules: _containers.RepeatedScalarFieldContainer[str]
    exposures: _containers.RepeatedCompositeFieldContainer[ExposureStats]
    conservative: ConservativeStats
    def __init__(self, log_position: _Optional[int] = ..., model_version: _Optional[int] = ..., recommendation_count: _Optional[int] = ..., observation_count: _Optional[int] = ..., default_count: _Optional[int] = ..., expiration_count: _Optional[int] = ..., late_reward_count: _Optional[int] = ..., pending_count: _Optional[int] = ..., item_count: _Optional[int] = ..., available_item_count: _Optional[int] = ..., posterior_row_count: _Optional[int] = ..., pending_row_count: _Optional[int] = ..., mean_reward: _Optional[float] = ..., regret_bound_sum: _Optional[float] = ..., estimated_regret_sum: _Optional[float] = ..., explored_count: _Optional[int] = ..., noise_variance: _Optional[float] = ..., prior_variance: _Optional[float] = ..., snapshot_position: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., memory_limit_bytes: _Optional[int] = ..., prior_slope: _Optional[float] = ..., rank_weight_power: _Optional[float] = ..., log_digest: _Optional[str] = ..., posterior_digest: _Optional[str] = ..., arithmetic: _Optional[str] = ..., outlier_count: _Optional[int] = ..., pair_scale: _Optional[float] = ..., constant_variance: _Optional[float] = ..., shared_context: _Optional[float] = ..., edges_reached: _Optional[_Iterable[str]] = ..., context_features: _Optional[_Iterable[_Union[_features_pb2.FeatureStats, _Mapping]]] = ..., item_features: _Optional[_Iterable[_Union[_features_pb2.FeatureStats, _Mapping]]] = ..., passed_over_count: _Optional[int] = ..., place_count: _Optional[int] = ..., unplaced_reward_count: _Optional[int] = ..., clamped_reward_count: _Optional[int] = ..., inactive_count: _Optional[int] = ..., lapsed_count: _Optional[int] = ..., shown_otherwise_count: _Optional[int] = ..., corrected_reward_count: _Optional[int] = ..., missed_correction_count: _Optional[int] = ..., content_share: _Optional[float] = ..., lost_event_count: _Optional[int] = ..., lost_reward_count: _Optional[int] = ..., imported_count: _Optional[int] = ..., forgotten_count: _Optional[int] = ..., noticed_change_count: _Optional[int] = ..., store_bytes: _Optional[int] = ..., set_aside_count: _Optional[int] = ..., outlier_context_count: _Optional[int] = ..., spread_factor: _Optional[float] = ..., has_reward_range: bool = ..., damage: _Optional[str] = ..., selection_share: _Optional[float] = ..., reward_times: _Optional[_Union[RewardTimes, _Mapping]] = ..., shadow: _Optional[_Union[ShadowStats, _Mapping]] = ..., lift: _Optional[_Union[Lift, _Mapping]] = ..., log_reach: _Optional[_Union[LogReach, _Mapping]] = ..., rules: _Optional[_Iterable[str]] = ..., exposures: _Optional[_Iterable[_Union[ExposureStats, _Mapping]]] = ..., conservative: _Optional[_Union[ConservativeStats, _Mapping]] = ...) -> None: ...

class ConservativeStats(_message.Message):
    __slots__ = ("since", "own", "baseline", "reserve", "shows_own")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FIELD_NUMBER: _ClassVar[int]
    SHOWS_OWN_FIELD_NUMBER: _ClassVar[int]
    since: _timestamp_pb2.Timestamp
    own: GroupStats
    baseline: GroupStats
    reserve: float
    shows_own: bool
    def __init__(self, since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., own: _Optional[_Union[GroupStats, _Mapping]] = ..., baseline: _Optional[_Union[GroupStats, _Mapping]] = ..., reserve: _Optional[float] = ..., shows_own: bool = ...) -> None: ...

class ExposureStats(_message.Message):
    __slots__ = ("rule", "slate_count", "shown_count", "owed")
    RULE_FIELD_NUMBER: _ClassVar[int]
    SLATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SHOWN_COUNT_FIELD_NUMBER: _ClassVar[int]
    OWED_FIELD_NUMBER: _ClassVar[int]
    rule: str
    slate_count: int
    shown_count: int
    owed: float
    def __init__(self, rule: _Optional[str] = ..., slate_count: _Optional[int] = ..., shown_count: _Optional[int] = ..., owed: _Optional[float] = ...) -> None: ...

class LogReach(_message.Message):
    __slots__ = ("first_position", "since", "stored_position", "missing_event_count")
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    STORED_POSITION_FIELD_NUMBER: _ClassVar[int]
    MISSING_EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    first_position: int
    since: _timestamp_pb2.Timestamp
    stored_position: int
    missing_event_count: int
    def __init__(self, first_position: _Optional[int] = ..., since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., stored_position: _Optional[int] = ..., missing_event_count: _Optional[int] = ...) -> None: ...

class ShadowStats(_message.Message):
    __slots__ = ("slate_count", "agreement_count", "shared_item_mean", "gain")
    SLATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    SHARED_ITEM_MEAN_FIELD_NUMBER: _ClassVar[int]
    GAIN_FIELD_NUMBER: _ClassVar[int]
    slate_count: int
    agreement_count: int
    shared_item_mean: float
    gain: Interval
    def __init__(self, slate_count: _Optional[int] = ..., agreement_count: _Optional[int] = ..., shared_item_mean: _Optional[float] = ..., gain: _Optional[_Union[Interval, _Mapping]] = ...) -> None: ...

class Lift(_message.Message):
    __slots__ = ("since", "bandit", "control", "verdict", "difference", "ratio", "further_request_count", "odd_groups", "confidence", "guarded_position", "guarded_reason", "days")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    FURTHER_REQUEST_COUNT_FIELD_NUMBER: _ClassVar[int]
    ODD_GROUPS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    GUARDED_POSITION_FIELD_NUMBER: _ClassVar[int]
    GUARDED_REASON_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    since: _timestamp_pb2.Timestamp
    bandit: GroupStats
    control: GroupStats
    verdict: LiftVerdict
    difference: Interval
    ratio: Interval
    further_request_count: int
    odd_groups: bool
    confidence: float
    guarded_position: int
    guarded_reason: str
    days: _containers.RepeatedCompositeFieldContainer[LiftDay]
    def __init__(self, since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., bandit: _Optional[_Union[GroupStats, _Mapping]] = ..., control: _Optional[_Union[GroupStats, _Mapping]] = ..., verdict: _Optional[_Union[LiftVerdict, str]] = ..., difference: _Optional[_Union[Interval, _Mapping]] = ..., ratio: _Optional[_Union[Interval, _Mapping]] = ..., further_request_count: _Optional[int] = ..., odd_groups: bool = ..., confidence: _Optional[float] = ..., guarded_position: _Optional[int] = ..., guarded_reason: _Optional[str] = ..., days: _Optional[_Iterable[_Union[LiftDay, _Mapping]]] = ...) -> None: ...

class LiftDay(_message.Message):
    __slots__ = ("start", "bandit", "control", "difference")
    START_FIELD_NUMBER: _ClassVar[int]
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    start: _timestamp_pb2.Timestamp
    bandit: GroupStats
    control: GroupStats
    difference: Interval
    def __init__(self, start: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., bandit: _Optional[_Union[GroupStats, _Mapping]] = ..., control: _Optional[_Union[GroupStats, _Mapping]] = ..., difference: _Optional[_Union[Interval, _Mapping]] = ...) -> None: ...

class GroupStats(_message.Message):
    __slots__ = ("drawn_count", "counted_count", "mean_reward")
    DRAWN_COUNT_FIELD_NUMBER: _ClassVar[int]
    COUNTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEAN_REWARD_FIELD_NUMBER: _ClassVar[int]
    drawn_count: int
    counted_count: int
    mean_reward: float
    def __init__(self, drawn_count: _Optional[int] = ..., counted_count: _Optional[int] = ..., mean_reward: _Optional[float] = ...) -> None: ...

class Interval(_message.Message):
    __slots__ = ("value", "low", "high")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    value: float
    low: float
    high: float
    def __init__(self, value: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class RewardTimes(_message.Message):
    __slots__ = ("slate_count", "points", "half_by", "nine_tenths_by", "almost_all_by", "reward_wait")
    SLATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    HALF_BY_FIELD_NUMBER: _ClassVar[int]
    NINE_TENTHS_BY_FIELD_NUMBER: _ClassVar[int]
    ALMOST_ALL_BY_FIELD_NUMBER: _ClassVar[int]
    REWARD_WAIT_FIELD_NUMBER: _ClassVar[int]
    slate_count: int
    points: _containers.RepeatedCompositeFieldContainer[RewardPoint]
    half_by: _duration_pb2.Duration
    nine_tenths_by: _duration_pb2.Duration
    almost_all_by: _duration_pb2.Duration
    reward_wait: _duration_pb2.Duration
    def __init__(self, slate_count: _Optional[int] = ..., points: _Optional[_Iterable[_Union[RewardPoint, _Mapping]]] = ..., half_by: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., nine_tenths_by: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., almost_all_by: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., reward_wait: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RewardPoint(_message.Message):
    __slots__ = ("delay", "share")
    DELAY_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    delay: _duration_pb2.Duration
    share: float
    def __init__(self, delay: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., share: _Optional[float] = ...) -> None: ...

class ImportObservationsRequest(_message.Message):
    __slots__ = ("bandit", "import_id", "first_row", "next_row", "rows", "skip_bad_rows")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    IMPORT_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    NEXT_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SKIP_BAD_ROWS_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    import_id: str
    first_row: int
    next_row: int
    rows: _containers.RepeatedCompositeFieldContainer[PastObservation]
    skip_bad_rows: bool
    def __init__(self, bandit: _Optional[str] = ..., import_id: _Optional[str] = ..., first_row: _Optional[int] = ..., next_row: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[PastObservation, _Mapping]]] = ..., skip_bad_rows: bool = ...) -> None: ...

class PastObservation(_message.Message):
    __slots__ = ("context", "features", "item_ids", "reward", "time", "propensity", "item_values")
    class FeaturesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _features_pb2.FeatureValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_features_pb2.FeatureValue, _Mapping]] = ...) -> None: ...
    class ItemValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    PROPENSITY_FIELD_NUMBER: _ClassVar[int]
    ITEM_VALUES_FIELD_NUMBER: _ClassVar[int]
    context: _containers.RepeatedScalarFieldContainer[float]
    features: _containers.MessageMap[str, _features_pb2.FeatureValue]
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    reward: float
    time: _timestamp_pb2.Timestamp
    propensity: float
    item_values: _containers.ScalarMap[str, float]
    def __init__(self, context: _Optional[_Iterable[float]] = ..., features: _Optional[_Mapping[str, _features_pb2.FeatureValue]] = ..., item_ids: _Optional[_Iterable[str]] = ..., reward: _Optional[float] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., propensity: _Optional[float] = ..., item_values: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ImportObservationsResponse(_message.Message):
    __slots__ = ("next_row", "accepted_count", "skipped_count", "row_errors", "log_position")
    NEXT_ROW_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ROW_ERRORS_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    next_row: int
    accepted_count: int
    skipped_count: int
    row_errors: _containers.RepeatedCompositeFieldContainer[RowError]
    log_position: int
    def __init__(self, next_row: _Optional[int] = ..., accepted_count: _Optional[int] = ..., skipped_count: _Optional[int] = ..., row_errors: _Optional[_Iterable[_Union[RowError, _Mapping]]] = ..., log_position: _Optional[int] = ...) -> None: ...

class RowError(_message.Message):
    __slots__ = ("row", "field", "message")
    ROW_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    row: int
    field: str
    message: str
    def __init__(self, row: _Optional[int] = ..., field: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class GetImportRequest(_message.Message):
    __slots__ = ("bandit", "import_id")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    IMPORT_ID_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    import_id: str
    def __init__(self, bandit: _Optional[str] = ..., import_id: _Optional[str] = ...) -> None: ...

class GetImportResponse(_message.Message):
    __slots__ = ("next_row", "accepted_count", "data_version")
    NEXT_ROW_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    next_row: int
    accepted_count: int
    data_version: int
    def __init__(self, next_row: _Optional[int] = ..., accepted_count: _Optional[int] = ..., data_version: _Optional[int] = ...) -> None: ...
