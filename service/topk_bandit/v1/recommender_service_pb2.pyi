from google.protobuf import timestamp_pb2 as _timestamp_pb2
from topk_bandit.v1 import features_pb2 as _features_pb2
from topk_bandit.v1 import rules_pb2 as _rules_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AbsenceReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ABSENCE_REASON_UNSPECIFIED: _ClassVar[AbsenceReason]
    ABSENCE_REASON_UNKNOWN: _ClassVar[AbsenceReason]
    ABSENCE_REASON_UNAVAILABLE: _ClassVar[AbsenceReason]
    ABSENCE_REASON_NO_CANDIDATE: _ClassVar[AbsenceReason]
    ABSENCE_REASON_EXCLUDED: _ClassVar[AbsenceReason]
    ABSENCE_REASON_FILTERED: _ClassVar[AbsenceReason]
    ABSENCE_REASON_RULE: _ClassVar[AbsenceReason]
    ABSENCE_REASON_NOT_CHOSEN: _ClassVar[AbsenceReason]
    ABSENCE_REASON_FREQUENT: _ClassVar[AbsenceReason]

class Stage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STAGE_UNSPECIFIED: _ClassVar[Stage]
    STAGE_LIVE: _ClassVar[Stage]
    STAGE_SHADOW: _ClassVar[Stage]
    STAGE_FROZEN: _ClassVar[Stage]
    STAGE_OFF: _ClassVar[Stage]

class Group(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_UNSPECIFIED: _ClassVar[Group]
    GROUP_BANDIT: _ClassVar[Group]
    GROUP_CONTROL: _ClassVar[Group]
    GROUP_CONSERVATIVE: _ClassVar[Group]

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_EXPLOITED: _ClassVar[Mode]
    MODE_EXPLORED: _ClassVar[Mode]
    MODE_BASELINE: _ClassVar[Mode]

class ActivationOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTIVATION_OUTCOME_UNSPECIFIED: _ClassVar[ActivationOutcome]
    ACTIVATION_OUTCOME_ACTIVATED: _ClassVar[ActivationOutcome]
    ACTIVATION_OUTCOME_DUPLICATE: _ClassVar[ActivationOutcome]
    ACTIVATION_OUTCOME_LATE: _ClassVar[ActivationOutcome]

class RewardOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REWARD_OUTCOME_UNSPECIFIED: _ClassVar[RewardOutcome]
    REWARD_OUTCOME_ACCEPTED: _ClassVar[RewardOutcome]
    REWARD_OUTCOME_DUPLICATE: _ClassVar[RewardOutcome]
    REWARD_OUTCOME_LATE: _ClassVar[RewardOutcome]

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    DURABILITY_MEMORY: _ClassVar[Durability]
    DURABILITY_FSYNC: _ClassVar[Durability]
    DURABILITY_REPLICATED: _ClassVar[Durability]
ABSENCE_REASON_UNSPECIFIED: AbsenceReason
ABSENCE_REASON_UNKNOWN: AbsenceReason
ABSENCE_REASON_UNAVAILABLE: AbsenceReason
ABSENCE_REASON_NO_CANDIDATE: AbsenceReason
ABSENCE_REASON_EXCLUDED: AbsenceReason
ABSENCE_REASON_FILTERED: AbsenceReason
ABSENCE_REASON_RULE: AbsenceReason
ABSENCE_REASON_NOT_CHOSEN: AbsenceReason
ABSENCE_REASON_FREQUENT: AbsenceReason
STAGE_UNSPECIFIED: Stage
STAGE_LIVE: Stage
STAGE_SHADOW: Stage
STAGE_FROZEN: Stage
STAGE_OFF: Stage
GROUP_UNSPECIFIED: Group
GROUP_BANDIT: Group
GROUP_CONTROL: Group
GROUP_CONSERVATIVE: Group
MODE_UNSPECIFIED: Mode
MODE_EXPLOITED: Mode
MODE_EXPLORED: Mode
MODE_BASELINE: Mode
ACTIVATION_OUTCOME_UNSPECIFIED: ActivationOutcome
ACTIVATION_OUTCOME_ACTIVATED: ActivationOutcome
ACTIVATION_OUTCOME_DUPLICATE: ActivationOutcome
ACTIVATION_OUTCOME_LATE: ActivationOutcome
REWARD_OUTCOME_UNSPECIFIED: RewardOutcome
REWARD_OUTCOME_ACCEPTED: RewardOutcome
REWARD_OUTCOME_DUPLICATE: RewardOutcome
REWARD_OUTCOME_LATE: RewardOutcome
DURABILITY_UNSPECIFIED: Durability
DURABILITY_MEMORY: Durability
DURABILITY_FSYNC: Durability
DURABILITY_REPLICATED: Durability

class RecommendRequest(_message.Message):
    __slots__ = ("bandit", "context", "candidate_item_ids", "request_id", "min_model_version", "features", "strict_candidates", "baseline_item_ids", "group_key", "rules", "explain_item_ids", "known_features_only", "frequency_key")
    class FeaturesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _features_pb2.FeatureValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_features_pb2.FeatureValue, _Mapping]] = ...) -> None: ...
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    STRICT_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    BASELINE_ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    GROUP_KEY_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FEATURES_ONLY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    context: _containers.RepeatedScalarFieldContainer[float]
    candidate_item_ids: _containers.RepeatedScalarFieldContainer[str]
    request_id: str
    min_model_version: int
    features: _containers.MessageMap[str, _features_pb2.FeatureValue]
    strict_candidates: bool
    baseline_item_ids: _containers.RepeatedScalarFieldContainer[str]
    group_key: str
    rules: _containers.RepeatedCompositeFieldContainer[_rules_pb2.SlateRule]
    explain_item_ids: _containers.RepeatedScalarFieldContainer[str]
    known_features_only: bool
    frequency_key: str
    def __init__(self, bandit: _Optional[str] = ..., context: _Optional[_Iterable[float]] = ..., candidate_item_ids: _Optional[_Iterable[str]] = ..., request_id: _Optional[str] = ..., min_model_version: _Optional[int] = ..., features: _Optional[_Mapping[str, _features_pb2.FeatureValue]] = ..., strict_candidates: bool = ..., baseline_item_ids: _Optional[_Iterable[str]] = ..., group_key: _Optional[str] = ..., rules: _Optional[_Iterable[_Union[_rules_pb2.SlateRule, _Mapping]]] = ..., explain_item_ids: _Optional[_Iterable[str]] = ..., known_features_only: bool = ..., frequency_key: _Optional[str] = ...) -> None: ...

class RecommendResponse(_message.Message):
    __slots__ = ("recommendation_id", "item_ids", "propensity", "mean", "standard_deviation", "regret_bound", "estimated_regret", "mode", "model_version", "observation_count", "reward_deadline", "degraded", "position_propensities", "regret_confidence", "passed_over_count", "stage", "group", "relaxed_rules", "absent_items", "paid_exposures")
    RECOMMENDATION_ID_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    PROPENSITY_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    STANDARD_DEVIATION_FIELD_NUMBER: _ClassVar[int]
    REGRET_BOUND_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_REGRET_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    REWARD_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    POSITION_PROPENSITIES_FIELD_NUMBER: _ClassVar[int]
    REGRET_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_COUNT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RELAXED_RULES_FIELD_NUMBER: _ClassVar[int]
    ABSENT_ITEMS_FIELD_NUMBER: _ClassVar[int]
    PAID_EXPOSURES_FIELD_NUMBER: _ClassVar[int]
    recommendation_id: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    propensity: float
    mean: float
    standard_deviation: float
    regret_bound: float
    estimated_regret: float
    mode: Mode
    model_version: int
    observation_count: int
    reward_deadline: _timestamp_pb2.Timestamp
    degraded: bool
    position_propensities: _containers.RepeatedScalarFieldContainer[float]
    regret_confidence: float
    passed_over_count: int
    stage: Stage
    group: Group
    relaxed_rules: _containers.RepeatedScalarFieldContainer[str]
    absent_items: _containers.RepeatedCompositeFieldContainer[AbsentItem]
    paid_exposures: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, recommendation_id: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ..., propensity: _Optional[float] = ..., mean: _Optional[float] = ..., standard_deviation: _Optional[float] = ..., regret_bound: _Optional[float] = ..., estimated_regret: _Optional[float] = ..., mode: _Optional[_Union[Mode, str]] = ..., model_version: _Optional[int] = ..., observation_count: _Optional[int] = ..., reward_deadline: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., degraded: bool = ..., position_propensities: _Optional[_Iterable[float]] = ..., regret_confidence: _Optional[float] = ..., passed_over_count: _Optional[int] = ..., stage: _Optional[_Union[Stage, str]] = ..., group: _Optional[_Union[Group, str]] = ..., relaxed_rules: _Optional[_Iterable[str]] = ..., absent_items: _Optional[_Iterable[_Union[AbsentItem, _Mapping]]] = ..., paid_exposures: _Optional[_Iterable[str]] = ...) -> None: ...

class BatchRecommendRequest(_message.Message):
    __slots__ = ("bandit", "requests")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    requests: _containers.RepeatedCompositeFieldContainer[RecommendRequest]
    def __init__(self, bandit: _Optional[str] = ..., requests: _Optional[_Iterable[_Union[RecommendRequest, _Mapping]]] = ...) -> None: ...

class BatchRecommendResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RecommendResult]
    def __init__(self, results: _Optional[_Iterable[_Union[RecommendResult, _Mapping]]] = ...) -> None: ...

class RecommendResult(_message.Message):
    __slots__ = ("slate", "error")
    SLATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    slate: RecommendResponse
    error: RewardError
    def __init__(self, slate: _Optional[_Union[RecommendResponse, _Mapping]] = ..., error: _Optional[_Union[RewardError, _Mapping]] = ...) -> None: ...

class RecommendPageRequest(_message.Message):
    __slots__ = ("parent", "page_id", "placements", "context", "features", "group_key", "frequency_key")
    class FeaturesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _features_pb2.FeatureValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_features_pb2.FeatureValue, _Mapping]] = ...) -> None: ...
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    GROUP_KEY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_id: str
    placements: _containers.RepeatedCompositeFieldContainer[RecommendRequest]
    context: _containers.RepeatedScalarFieldContainer[float]
    features: _containers.MessageMap[str, _features_pb2.FeatureValue]
    group_key: str
    frequency_key: str
    def __init__(self, parent: _Optional[str] = ..., page_id: _Optional[str] = ..., placements: _Optional[_Iterable[_Union[RecommendRequest, _Mapping]]] = ..., context: _Optional[_Iterable[float]] = ..., features: _Optional[_Mapping[str, _features_pb2.FeatureValue]] = ..., group_key: _Optional[str] = ..., frequency_key: _Optional[str] = ...) -> None: ...

class RecommendPageResponse(_message.Message):
    __slots__ = ("page_id", "placements")
    PAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    page_id: str
    placements: _containers.RepeatedCompositeFieldContainer[RecommendResult]
    def __init__(self, page_id: _Optional[str] = ..., placements: _Optional[_Iterable[_Union[RecommendResult, _Mapping]]] = ...) -> None: ...

class RewardPageRequest(_message.Message):
    __slots__ = ("parent", "page_id", "bandits", "value", "reward_id", "final")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_ID_FIELD_NUMBER: _ClassVar[int]
    BANDITS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REWARD_ID_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_id: str
    bandits: _containers.RepeatedScalarFieldContainer[str]
    value: float
    reward_id: str
    final: bool
    def __init__(self, parent: _Optional[str] = ..., page_id: _Optional[str] = ..., bandits: _Optional[_Iterable[str]] = ..., value: _Optional[float] = ..., reward_id: _Optional[str] = ..., final: bool = ...) -> None: ...

class RewardPageResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RewardResult]
    def __init__(self, results: _Optional[_Iterable[_Union[RewardResult, _Mapping]]] = ...) -> None: ...

class AbsentItem(_message.Message):
    __slots__ = ("item_id", "reason", "rule")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    reason: AbsenceReason
    rule: str
    def __init__(self, item_id: _Optional[str] = ..., reason: _Optional[_Union[AbsenceReason, str]] = ..., rule: _Optional[str] = ...) -> None: ...

class ActivateRequest(_message.Message):
    __slots__ = ("bandit", "recommendation_id", "shown_item_ids")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_ID_FIELD_NUMBER: _ClassVar[int]
    SHOWN_ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    recommendation_id: str
    shown_item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, bandit: _Optional[str] = ..., recommendation_id: _Optional[str] = ..., shown_item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ActivateResponse(_message.Message):
    __slots__ = ("outcome", "log_position")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    outcome: ActivationOutcome
    log_position: int
    def __init__(self, outcome: _Optional[_Union[ActivationOutcome, str]] = ..., log_position: _Optional[int] = ...) -> None: ...

class RewardRequest(_message.Message):
    __slots__ = ("bandit", "recommendation_id", "value", "reward_id", "final", "item_values")
    class ItemValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REWARD_ID_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    ITEM_VALUES_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    recommendation_id: str
    value: float
    reward_id: str
    final: bool
    item_values: _containers.ScalarMap[str, float]
    def __init__(self, bandit: _Optional[str] = ..., recommendation_id: _Optional[str] = ..., value: _Optional[float] = ..., reward_id: _Optional[str] = ..., final: bool = ..., item_values: _Optional[_Mapping[str, float]] = ...) -> None: ...

class RewardResponse(_message.Message):
    __slots__ = ("outcome", "log_position", "durability", "replica_count")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
    outcome: RewardOutcome
    log_position: int
    durability: Durability
    replica_count: int
    def __init__(self, outcome: _Optional[_Union[RewardOutcome, str]] = ..., log_position: _Optional[int] = ..., durability: _Optional[_Union[Durability, str]] = ..., replica_count: _Optional[int] = ...) -> None: ...

class VoidRewardRequest(_message.Message):
    __slots__ = ("bandit", "recommendation_id", "reward_id")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_ID_FIELD_NUMBER: _ClassVar[int]
    REWARD_ID_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    recommendation_id: str
    reward_id: str
    def __init__(self, bandit: _Optional[str] = ..., recommendation_id: _Optional[str] = ..., reward_id: _Optional[str] = ...) -> None: ...

class VoidRewardResponse(_message.Message):
    __slots__ = ("outcome", "log_position", "durability", "replica_count")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
    outcome: RewardOutcome
    log_position: int
    durability: Durability
    replica_count: int
    def __init__(self, outcome: _Optional[_Union[RewardOutcome, str]] = ..., log_position: _Optional[int] = ..., durability: _Optional[_Union[Durability, str]] = ..., replica_count: _Optional[int] = ...) -> None: ...

class AmendRewardRequest(_message.Message):
    __slots__ = ("bandit", "recommendation_id", "reward_id", "value", "item_values")
    class ItemValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_ID_FIELD_NUMBER: _ClassVar[int]
    REWARD_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ITEM_VALUES_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    recommendation_id: str
    reward_id: str
    value: float
    item_values: _containers.ScalarMap[str, float]
    def __init__(self, bandit: _Optional[str] = ..., recommendation_id: _Optional[str] = ..., reward_id: _Optional[str] = ..., value: _Optional[float] = ..., item_values: _Optional[_Mapping[str, float]] = ...) -> None: ...

class AmendRewardResponse(_message.Message):
    __slots__ = ("outcome", "log_position", "durability", "replica_count")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
    outcome: RewardOutcome
    log_position: int
    durability: Durability
    replica_count: int
    def __init__(self, outcome: _Optional[_Union[RewardOutcome, str]] = ..., log_position: _Optional[int] = ..., durability: _Optional[_Union[Durability, str]] = ..., replica_count: _Optional[int] = ...) -> None: ...

class BatchRewardRequest(_message.Message):
    __slots__ = ("bandit", "rewards")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    rewards: _containers.RepeatedCompositeFieldContainer[RewardEntry]
    def __init__(self, bandit: _Optional[str] = ..., rewards: _Optional[_Iterable[_Union[RewardEntry, _Mapping]]] = ...) -> None: ...

class RewardEntry(_message.Message):
    __slots__ = ("recommendation_id", "value", "reward_id", "final", "item_values")
    class ItemValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RECOMMENDATION_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REWARD_ID_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    ITEM_VALUES_FIELD_NUMBER: _ClassVar[int]
    recommendation_id: str
    value: float
    reward_id: str
    final: bool
    item_values: _containers.ScalarMap[str, float]
    def __init__(self, recommendation_id: _Optional[str] = ..., value: _Optional[float] = ..., reward_id: _Optional[str] = ..., final: bool = ..., item_values: _Optional[_Mapping[str, float]] = ...) -> None: ...

class BatchRewardResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RewardResult]
    def __init__(self, results: _Optional[_Iterable[_Union[RewardResult, _Mapping]]] = ...) -> None: ...

class RewardResult(_message.Message):
    __slots__ = ("outcome", "error", "log_position", "durability", "replica_count")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
    outcome: RewardOutcome
    error: RewardError
    log_position: int
    durability: Durability
    replica_count: int
    def __init__(self, outcome: _Optional[_Union[RewardOutcome, str]] = ..., error: _Optional[_Union[RewardError, _Mapping]] = ..., log_position: _Optional[int] = ..., durability: _Optional[_Union[Durability, str]] = ..., replica_count: _Optional[int] = ...) -> None: ...

class RewardError(_message.Message):
    __slots__ = ("code", "message", "field", "reason")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    field: str
    reason: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., field: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
