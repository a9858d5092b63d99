from google.protobuf import duration_pb2 as _duration_pb2
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

class ModelSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_SOURCE_UNSPECIFIED: _ClassVar[ModelSource]
    MODEL_SOURCE_LIVE: _ClassVar[ModelSource]
    MODEL_SOURCE_REPLAYED: _ClassVar[ModelSource]
    MODEL_SOURCE_TRIMMED: _ClassVar[ModelSource]
MODEL_SOURCE_UNSPECIFIED: ModelSource
MODEL_SOURCE_LIVE: ModelSource
MODEL_SOURCE_REPLAYED: ModelSource
MODEL_SOURCE_TRIMMED: ModelSource

class ExplainRecommendationRequest(_message.Message):
    __slots__ = ("bandit", "recommendation_id", "explain_item_ids")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_ID_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    recommendation_id: str
    explain_item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, bandit: _Optional[str] = ..., recommendation_id: _Optional[str] = ..., explain_item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ExplainRecommendationResponse(_message.Message):
    __slots__ = ("request_id", "context", "features", "candidate_item_ids", "recommendation", "best_item_ids", "log_position", "recommend_time", "model_source", "reasons", "absent_items", "reasons_problem")
    class FeaturesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _features_pb2.FeatureValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_features_pb2.FeatureValue, _Mapping]] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_FIELD_NUMBER: _ClassVar[int]
    BEST_ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    RECOMMEND_TIME_FIELD_NUMBER: _ClassVar[int]
    MODEL_SOURCE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    ABSENT_ITEMS_FIELD_NUMBER: _ClassVar[int]
    REASONS_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    context: _containers.RepeatedScalarFieldContainer[float]
    features: _containers.MessageMap[str, _features_pb2.FeatureValue]
    candidate_item_ids: _containers.RepeatedScalarFieldContainer[str]
    recommendation: _recommender_service_pb2.RecommendResponse
    best_item_ids: _containers.RepeatedScalarFieldContainer[str]
    log_position: int
    recommend_time: _timestamp_pb2.Timestamp
    model_source: ModelSource
    reasons: Reasons
    absent_items: _containers.RepeatedCompositeFieldContainer[_recommender_service_pb2.AbsentItem]
    reasons_problem: str
    def __init__(self, request_id: _Optional[str] = ..., context: _Optional[_Iterable[float]] = ..., features: _Optional[_Mapping[str, _features_pb2.FeatureValue]] = ..., candidate_item_ids: _Optional[_Iterable[str]] = ..., recommendation: _Optional[_Union[_recommender_service_pb2.RecommendResponse, _Mapping]] = ..., best_item_ids: _Optional[_Iterable[str]] = ..., log_position: _Optional[int] = ..., recommend_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., model_source: _Optional[_Union[ModelSource, str]] = ..., reasons: _Optional[_Union[Reasons, _Mapping]] = ..., absent_items: _Optional[_Iterable[_Union[_recommender_service_pb2.AbsentItem, _Mapping]]] = ..., reasons_problem: _Optional[str] = ...) -> None: ...

class Reasons(_message.Message):
    __slots__ = ("shown", "offset", "context_part", "items", "pairs", "beta", "chosen_again", "next_best")
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_PART_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_AGAIN_FIELD_NUMBER: _ClassVar[int]
    NEXT_BEST_FIELD_NUMBER: _ClassVar[int]
    shown: RankedSlate
    offset: float
    context_part: float
    items: _containers.RepeatedCompositeFieldContainer[ItemPart]
    pairs: _containers.RepeatedCompositeFieldContainer[PairPart]
    beta: float
    chosen_again: bool
    next_best: _containers.RepeatedCompositeFieldContainer[RankedSlate]
    def __init__(self, shown: _Optional[_Union[RankedSlate, _Mapping]] = ..., offset: _Optional[float] = ..., context_part: _Optional[float] = ..., items: _Optional[_Iterable[_Union[ItemPart, _Mapping]]] = ..., pairs: _Optional[_Iterable[_Union[PairPart, _Mapping]]] = ..., beta: _Optional[float] = ..., chosen_again: bool = ..., next_best: _Optional[_Iterable[_Union[RankedSlate, _Mapping]]] = ...) -> None: ...

class ItemPart(_message.Message):
    __slots__ = ("item_id", "position", "own", "content", "prior")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    PRIOR_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    position: int
    own: float
    content: float
    prior: float
    def __init__(self, item_id: _Optional[str] = ..., position: _Optional[int] = ..., own: _Optional[float] = ..., content: _Optional[float] = ..., prior: _Optional[float] = ...) -> None: ...

class PairPart(_message.Message):
    __slots__ = ("first_item_id", "second_item_id", "value")
    FIRST_ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    SECOND_ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    first_item_id: str
    second_item_id: str
    value: float
    def __init__(self, first_item_id: _Optional[str] = ..., second_item_id: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class RankedSlate(_message.Message):
    __slots__ = ("item_ids", "mean", "standard_deviation", "upper_bound", "score")
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    STANDARD_DEVIATION_FIELD_NUMBER: _ClassVar[int]
    UPPER_BOUND_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    mean: float
    standard_deviation: float
    upper_bound: float
    score: float
    def __init__(self, item_ids: _Optional[_Iterable[str]] = ..., mean: _Optional[float] = ..., standard_deviation: _Optional[float] = ..., upper_bound: _Optional[float] = ..., score: _Optional[float] = ...) -> None: ...

class ListTopSlatesRequest(_message.Message):
    __slots__ = ("bandit", "context", "features", "limit", "proposed")
    class FeaturesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _features_pb2.FeatureValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_features_pb2.FeatureValue, _Mapping]] = ...) -> None: ...
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PROPOSED_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    context: _containers.RepeatedScalarFieldContainer[float]
    features: _containers.MessageMap[str, _features_pb2.FeatureValue]
    limit: int
    proposed: _rules_pb2.SlateRules
    def __init__(self, bandit: _Optional[str] = ..., context: _Optional[_Iterable[float]] = ..., features: _Optional[_Mapping[str, _features_pb2.FeatureValue]] = ..., limit: _Optional[int] = ..., proposed: _Optional[_Union[_rules_pb2.SlateRules, _Mapping]] = ...) -> None: ...

class ListTopSlatesResponse(_message.Message):
    __slots__ = ("slates", "model_version", "item_count", "rules", "relaxed_rules")
    SLATES_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    RELAXED_RULES_FIELD_NUMBER: _ClassVar[int]
    slates: _containers.RepeatedCompositeFieldContainer[RankedSlate]
    model_version: int
    item_count: int
    rules: _containers.RepeatedScalarFieldContainer[str]
    relaxed_rules: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, slates: _Optional[_Iterable[_Union[RankedSlate, _Mapping]]] = ..., model_version: _Optional[int] = ..., item_count: _Optional[int] = ..., rules: _Optional[_Iterable[str]] = ..., relaxed_rules: _Optional[_Iterable[str]] = ...) -> None: ...

class ListTenantsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTenantsResponse(_message.Message):
    __slots__ = ("tenants", "next_page_token")
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenants: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    def __init__(self, tenants: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetTenantStatsRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class GetTenantStatsResponse(_message.Message):
    __slots__ = ("bandit_count", "log_event_count", "pending_count", "late_reward_count", "model_count", "model_memory_bytes", "recommendation_count", "observation_count", "quotas")
    BANDIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOG_EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    LATE_REWARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    MODEL_COUNT_FIELD_NUMBER: _ClassVar[int]
    MODEL_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    bandit_count: int
    log_event_count: int
    pending_count: int
    late_reward_count: int
    model_count: int
    model_memory_bytes: int
    recommendation_count: int
    observation_count: int
    quotas: _containers.RepeatedCompositeFieldContainer[QuotaUse]
    def __init__(self, bandit_count: _Optional[int] = ..., log_event_count: _Optional[int] = ..., pending_count: _Optional[int] = ..., late_reward_count: _Optional[int] = ..., model_count: _Optional[int] = ..., model_memory_bytes: _Optional[int] = ..., recommendation_count: _Optional[int] = ..., observation_count: _Optional[int] = ..., quotas: _Optional[_Iterable[_Union[QuotaUse, _Mapping]]] = ...) -> None: ...

class GetServiceStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServiceStatusResponse(_message.Message):
    __slots__ = ("version", "worker", "start_time", "window", "calls", "store")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    version: str
    worker: str
    start_time: _timestamp_pb2.Timestamp
    window: _duration_pb2.Duration
    calls: _containers.RepeatedCompositeFieldContainer[CallStatus]
    store: StoreStatus
    def __init__(self, version: _Optional[str] = ..., worker: _Optional[str] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., window: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., calls: _Optional[_Iterable[_Union[CallStatus, _Mapping]]] = ..., store: _Optional[_Union[StoreStatus, _Mapping]] = ...) -> None: ...

class CallStatus(_message.Message):
    __slots__ = ("method", "call_count", "failed_count", "median_seconds", "p90_seconds", "p99_seconds")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    CALL_COUNT_FIELD_NUMBER: _ClassVar[int]
    FAILED_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    P90_SECONDS_FIELD_NUMBER: _ClassVar[int]
    P99_SECONDS_FIELD_NUMBER: _ClassVar[int]
    method: str
    call_count: int
    failed_count: int
    median_seconds: float
    p90_seconds: float
    p99_seconds: float
    def __init__(self, method: _Optional[str] = ..., call_count: _Optional[int] = ..., failed_count: _Optional[int] = ..., median_seconds: _Optional[float] = ..., p90_seconds: _Optional[float] = ..., p99_seconds: _Optional[float] = ...) -> None: ...

class StoreStatus(_message.Message):
    __slots__ = ("server", "version", "mode", "durability", "problems", "memory_bytes", "memory_limit_bytes")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    server: str
    version: str
    mode: str
    durability: str
    problems: _containers.RepeatedScalarFieldContainer[str]
    memory_bytes: int
    memory_limit_bytes: int
    def __init__(self, server: _Optional[str] = ..., version: _Optional[str] = ..., mode: _Optional[str] = ..., durability: _Optional[str] = ..., problems: _Optional[_Iterable[str]] = ..., memory_bytes: _Optional[int] = ..., memory_limit_bytes: _Optional[int] = ...) -> None: ...

class QuotaUse(_message.Message):
    __slots__ = ("quota", "limit", "used")
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    quota: str
    limit: int
    used: int
    def __init__(self, quota: _Optional[str] = ..., limit: _Optional[int] = ..., used: _Optional[int] = ...) -> None: ...

class ListBanditOverviewsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "containing")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONTAINING_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    containing: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., containing: _Optional[str] = ...) -> None: ...

class ListBanditOverviewsResponse(_message.Message):
    __slots__ = ("overviews", "next_page_token")
    OVERVIEWS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    overviews: _containers.RepeatedCompositeFieldContainer[BanditOverview]
    next_page_token: str
    def __init__(self, overviews: _Optional[_Iterable[_Union[BanditOverview, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class BanditOverview(_message.Message):
    __slots__ = ("name", "create_time", "log_position", "snapshot_position", "pending_count", "late_reward_count", "glance")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_POSITION_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    LATE_REWARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    GLANCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    create_time: _timestamp_pb2.Timestamp
    log_position: int
    snapshot_position: int
    pending_count: int
    late_reward_count: int
    glance: ModelGlance
    def __init__(self, name: _Optional[str] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., log_position: _Optional[int] = ..., snapshot_position: _Optional[int] = ..., pending_count: _Optional[int] = ..., late_reward_count: _Optional[int] = ..., glance: _Optional[_Union[ModelGlance, _Mapping]] = ...) -> None: ...

class ModelGlance(_message.Message):
    __slots__ = ("model_version", "recommendation_count", "observation_count", "explored_count", "mean_reward", "regret_bound_sum", "estimated_regret_sum", "item_count", "memory_bytes")
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    EXPLORED_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEAN_REWARD_FIELD_NUMBER: _ClassVar[int]
    REGRET_BOUND_SUM_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_REGRET_SUM_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    model_version: int
    recommendation_count: int
    observation_count: int
    explored_count: int
    mean_reward: float
    regret_bound_sum: float
    estimated_regret_sum: float
    item_count: int
    memory_bytes: int
    def __init__(self, model_version: _Optional[int] = ..., recommendation_count: _Optional[int] = ..., observation_count: _Optional[int] = ..., explored_count: _Optional[int] = ..., mean_reward: _Optional[float] = ..., regret_bound_sum: _Optional[float] = ..., estimated_regret_sum: _Optional[float] = ..., item_count: _Optional[int] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class GetBanditHistoryRequest(_message.Message):
    __slots__ = ("bandit",)
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    def __init__(self, bandit: _Optional[str] = ...) -> None: ...

class GetBanditHistoryResponse(_message.Message):
    __slots__ = ("points",)
    POINTS_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedCompositeFieldContainer[HistoryPoint]
    def __init__(self, points: _Optional[_Iterable[_Union[HistoryPoint, _Mapping]]] = ...) -> None: ...

class HistoryPoint(_message.Message):
    __slots__ = ("start_time", "end_time", "recommendation_count", "explored_count", "rewarded_count", "expired_count", "observation_count", "reward_sum", "regret_bound_sum", "estimated_regret_sum", "mean_reward", "explored_share", "join_rate")
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    EXPLORED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REWARDED_COUNT_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_COUNT_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    REWARD_SUM_FIELD_NUMBER: _ClassVar[int]
    REGRET_BOUND_SUM_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_REGRET_SUM_FIELD_NUMBER: _ClassVar[int]
    MEAN_REWARD_FIELD_NUMBER: _ClassVar[int]
    EXPLORED_SHARE_FIELD_NUMBER: _ClassVar[int]
    JOIN_RATE_FIELD_NUMBER: _ClassVar[int]
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    recommendation_count: int
    explored_count: int
    rewarded_count: int
    expired_count: int
    observation_count: int
    reward_sum: float
    regret_bound_sum: float
    estimated_regret_sum: float
    mean_reward: float
    explored_share: float
    join_rate: float
    def __init__(self, start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., recommendation_count: _Optional[int] = ..., explored_count: _Optional[int] = ..., rewarded_count: _Optional[int] = ..., expired_count: _Optional[int] = ..., observation_count: _Optional[int] = ..., reward_sum: _Optional[float] = ..., regret_bound_sum: _Optional[float] = ..., estimated_regret_sum: _Optional[float] = ..., mean_reward: _Optional[float] = ..., explored_share: _Optional[float] = ..., join_rate: _Optional[float] = ...) -> None: ...

class VerifyBanditRequest(_message.Message):
    __slots__ = ("bandit",)
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    def __init__(self, bandit: _Optional[str] = ...) -> None: ...

class VerifyBanditResponse(_message.Message):
    __slots__ = ("agrees", "difference", "model_version", "replayed_from", "log_digest", "posterior_digest", "arithmetic", "replayed_log_digest", "replayed_posterior_digest", "replayed_arithmetic")
    AGREES_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FROM_FIELD_NUMBER: _ClassVar[int]
    LOG_DIGEST_FIELD_NUMBER: _ClassVar[int]
    POSTERIOR_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARITHMETIC_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_LOG_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_POSTERIOR_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_ARITHMETIC_FIELD_NUMBER: _ClassVar[int]
    agrees: bool
    difference: str
    model_version: int
    replayed_from: int
    log_digest: str
    posterior_digest: str
    arithmetic: str
    replayed_log_digest: str
    replayed_posterior_digest: str
    replayed_arithmetic: str
    def __init__(self, agrees: bool = ..., difference: _Optional[str] = ..., model_version: _Optional[int] = ..., replayed_from: _Optional[int] = ..., log_digest: _Optional[str] = ..., posterior_digest: _Optional[str] = ..., arithmetic: _Optional[str] = ..., replayed_log_digest: _Optional[str] = ..., replayed_posterior_digest: _Optional[str] = ..., replayed_arithmetic: _Optional[str] = ...) -> None: ...

class ExportEventsRequest(_message.Message):
    __slots__ = ("bandit", "cursor", "start_position", "page_size")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    START_POSITION_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    cursor: str
    start_position: int
    page_size: int
    def __init__(self, bandit: _Optional[str] = ..., cursor: _Optional[str] = ..., start_position: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...

class ExportEventsResponse(_message.Message):
    __slots__ = ("events", "next_cursor", "log_position")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[ExportedEvent]
    next_cursor: str
    log_position: int
    def __init__(self, events: _Optional[_Iterable[_Union[ExportedEvent, _Mapping]]] = ..., next_cursor: _Optional[str] = ..., log_position: _Optional[int] = ...) -> None: ...

class ExportedEvent(_message.Message):
    __slots__ = ("position", "time", "event_json")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    EVENT_JSON_FIELD_NUMBER: _ClassVar[int]
    position: int
    time: _timestamp_pb2.Timestamp
    event_json: str
    def __init__(self, position: _Optional[int] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., event_json: _Optional[str] = ...) -> None: ...

class ExportStateRequest(_message.Message):
    __slots__ = ("bandit", "cursor")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    cursor: str
    def __init__(self, bandit: _Optional[str] = ..., cursor: _Optional[str] = ...) -> None: ...

class ExportStateResponse(_message.Message):
    __slots__ = ("lines", "next_cursor")
    LINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    next_cursor: str
    def __init__(self, lines: _Optional[_Iterable[str]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class ImportEventsRequest(_message.Message):
    __slots__ = ("bandit", "import_id", "first_line", "lines")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    IMPORT_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_LINE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    import_id: str
    first_line: int
    lines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, bandit: _Optional[str] = ..., import_id: _Optional[str] = ..., first_line: _Optional[int] = ..., lines: _Optional[_Iterable[str]] = ...) -> None: ...

class ImportEventsResponse(_message.Message):
    __slots__ = ("next_line", "log_position")
    NEXT_LINE_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    next_line: int
    log_position: int
    def __init__(self, next_line: _Optional[int] = ..., log_position: _Optional[int] = ...) -> None: ...

class SkipEventRequest(_message.Message):
    __slots__ = ("bandit", "position", "reason")
    BANDIT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    bandit: str
    position: int
    reason: str
    def __init__(self, bandit: _Optional[str] = ..., position: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class SkipEventResponse(_message.Message):
    __slots__ = ("model_version", "log_position", "problem")
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    model_version: int
    log_position: int
    problem: str
    def __init__(self, model_version: _Optional[int] = ..., log_position: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...
