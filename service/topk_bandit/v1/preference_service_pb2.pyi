from google.longrunning import operations_pb2 as _operations_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from topk_bandit.v1 import features_pb2 as _features_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PreferenceModel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PREFERENCE_MODEL_UNSPECIFIED: _ClassVar[PreferenceModel]
    PREFERENCE_MODEL_PLACKETT_LUCE: _ClassVar[PreferenceModel]
    PREFERENCE_MODEL_VARIATIONAL_TILTED: _ClassVar[PreferenceModel]
    PREFERENCE_MODEL_VARIATIONAL_QUADRATIC: _ClassVar[PreferenceModel]
    PREFERENCE_MODEL_PAIRWISE: _ClassVar[PreferenceModel]
    PREFERENCE_MODEL_AGGREGATION_SQUARED: _ClassVar[PreferenceModel]
    PREFERENCE_MODEL_AGGREGATION_LOGISTIC: _ClassVar[PreferenceModel]
    PREFERENCE_MODEL_STREAM_SQUARED: _ClassVar[PreferenceModel]
    PREFERENCE_MODEL_STREAM_LOGISTIC: _ClassVar[PreferenceModel]
    PREFERENCE_MODEL_LEAST_SQUARES: _ClassVar[PreferenceModel]

class AnswerKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANSWER_KIND_UNSPECIFIED: _ClassVar[AnswerKind]
    ANSWER_KIND_RATINGS: _ClassVar[AnswerKind]
    ANSWER_KIND_RANKING: _ClassVar[AnswerKind]
    ANSWER_KIND_CHOICE: _ClassVar[AnswerKind]
    ANSWER_KIND_PAIR: _ClassVar[AnswerKind]

class StudyState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STUDY_STATE_UNSPECIFIED: _ClassVar[StudyState]
    STUDY_STATE_DESIGNING: _ClassVar[StudyState]
    STUDY_STATE_READY: _ClassVar[StudyState]
    STUDY_STATE_CANCELLED: _ClassVar[StudyState]
    STUDY_STATE_FAILED: _ClassVar[StudyState]

class DeclineReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DECLINE_REASON_UNSPECIFIED: _ClassVar[DeclineReason]
    DECLINE_REASON_SKIPPED: _ClassVar[DeclineReason]
    DECLINE_REASON_NONE_OF_THESE: _ClassVar[DeclineReason]

class AnswerOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANSWER_OUTCOME_UNSPECIFIED: _ClassVar[AnswerOutcome]
    ANSWER_OUTCOME_ACCEPTED: _ClassVar[AnswerOutcome]
    ANSWER_OUTCOME_DUPLICATE: _ClassVar[AnswerOutcome]

class LinkState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINK_STATE_UNSPECIFIED: _ClassVar[LinkState]
    LINK_STATE_OPEN: _ClassVar[LinkState]
    LINK_STATE_REVOKED: _ClassVar[LinkState]
    LINK_STATE_EXPIRED: _ClassVar[LinkState]
    LINK_STATE_USED_UP: _ClassVar[LinkState]
PREFERENCE_MODEL_UNSPECIFIED: PreferenceModel
PREFERENCE_MODEL_PLACKETT_LUCE: PreferenceModel
PREFERENCE_MODEL_VARIATIONAL_TILTED: PreferenceModel
PREFERENCE_MODEL_VARIATIONAL_QUADRATIC: PreferenceModel
PREFERENCE_MODEL_PAIRWISE: PreferenceModel
PREFERENCE_MODEL_AGGREGATION_SQUARED: PreferenceModel
PREFERENCE_MODEL_AGGREGATION_LOGISTIC: PreferenceModel
PREFERENCE_MODEL_STREAM_SQUARED: PreferenceModel
PREFERENCE_MODEL_STREAM_LOGISTIC: PreferenceModel
PREFERENCE_MODEL_LEAST_SQUARES: PreferenceModel
ANSWER_KIND_UNSPECIFIED: AnswerKind
ANSWER_KIND_RATINGS: AnswerKind
ANSWER_KIND_RANKING: AnswerKind
ANSWER_KIND_CHOICE: AnswerKind
ANSWER_KIND_PAIR: AnswerKind
STUDY_STATE_UNSPECIFIED: StudyState
STUDY_STATE_DESIGNING: StudyState
STUDY_STATE_READY: StudyState
STUDY_STATE_CANCELLED: StudyState
STUDY_STATE_FAILED: StudyState
DECLINE_REASON_UNSPECIFIED: DeclineReason
DECLINE_REASON_SKIPPED: DeclineReason
DECLINE_REASON_NONE_OF_THESE: DeclineReason
ANSWER_OUTCOME_UNSPECIFIED: AnswerOutcome
ANSWER_OUTCOME_ACCEPTED: AnswerOutcome
ANSWER_OUTCOME_DUPLICATE: AnswerOutcome
LINK_STATE_UNSPECIFIED: LinkState
LINK_STATE_OPEN: LinkState
LINK_STATE_REVOKED: LinkState
LINK_STATE_EXPIRED: LinkState
LINK_STATE_USED_UP: LinkState

class Study(_message.Message):
    __slots__ = ("name", "items", "queries", "answer_kind", "list_size", "budget", "state", "design", "asked_count", "answered_count", "item_count", "query_count", "create_time", "imported_count", "item_schema", "features_alone", "designed_item_count", "model", "stream_rate", "lists", "given_list_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    ANSWER_KIND_FIELD_NUMBER: _ClassVar[int]
    LIST_SIZE_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DESIGN_FIELD_NUMBER: _ClassVar[int]
    ASKED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    IMPORTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ITEM_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    FEATURES_ALONE_FIELD_NUMBER: _ClassVar[int]
    DESIGNED_ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STREAM_RATE_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    GIVEN_LIST_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    items: _containers.RepeatedCompositeFieldContainer[StudyItem]
    queries: _containers.RepeatedCompositeFieldContainer[StudyQuery]
    answer_kind: AnswerKind
    list_size: int
    budget: int
    state: StudyState
    design: DesignProgress
    asked_count: int
    answered_count: int
    item_count: int
    query_count: int
    create_time: _timestamp_pb2.Timestamp
    imported_count: int
    item_schema: _features_pb2.FeatureSchema
    features_alone: bool
    designed_item_count: int
    model: PreferenceModel
    stream_rate: float
    lists: _containers.RepeatedCompositeFieldContainer[StudyList]
    given_list_count: int
    def __init__(self, name: _Optional[str] = ..., items: _Optional[_Iterable[_Union[StudyItem, _Mapping]]] = ..., queries: _Optional[_Iterable[_Union[StudyQuery, _Mapping]]] = ..., answer_kind: _Optional[_Union[AnswerKind, str]] = ..., list_size: _Optional[int] = ..., budget: _Optional[int] = ..., state: _Optional[_Union[StudyState, str]] = ..., design: _Optional[_Union[DesignProgress, _Mapping]] = ..., asked_count: _Optional[int] = ..., answered_count: _Optional[int] = ..., item_count: _Optional[int] = ..., query_count: _Optional[int] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., imported_count: _Optional[int] = ..., item_schema: _Optional[_Union[_features_pb2.FeatureSchema, _Mapping]] = ..., features_alone: bool = ..., designed_item_count: _Optional[int] = ..., model: _Optional[_Union[PreferenceModel, str]] = ..., stream_rate: _Optional[float] = ..., lists: _Optional[_Iterable[_Union[StudyList, _Mapping]]] = ..., given_list_count: _Optional[int] = ...) -> None: ...

class StudyItem(_message.Message):
    __slots__ = ("item_id", "features", "named_features", "title", "picture_url")
    class NamedFeaturesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _features_pb2.FeatureValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_features_pb2.FeatureValue, _Mapping]] = ...) -> None: ...
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    NAMED_FEATURES_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    PICTURE_URL_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    features: _containers.RepeatedScalarFieldContainer[float]
    named_features: _containers.MessageMap[str, _features_pb2.FeatureValue]
    title: str
    picture_url: str
    def __init__(self, item_id: _Optional[str] = ..., features: _Optional[_Iterable[float]] = ..., named_features: _Optional[_Mapping[str, _features_pb2.FeatureValue]] = ..., title: _Optional[str] = ..., picture_url: _Optional[str] = ...) -> None: ...

class StudyQuery(_message.Message):
    __slots__ = ("query_id", "features")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    query_id: str
    features: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, query_id: _Optional[str] = ..., features: _Optional[_Iterable[float]] = ...) -> None: ...

class StudyList(_message.Message):
    __slots__ = ("query_id", "item_ids")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    query_id: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, query_id: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DesignProgress(_message.Message):
    __slots__ = ("steps", "log_det", "gap", "target_gap")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LOG_DET_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    TARGET_GAP_FIELD_NUMBER: _ClassVar[int]
    steps: int
    log_det: float
    gap: float
    target_gap: float
    def __init__(self, steps: _Optional[int] = ..., log_det: _Optional[float] = ..., gap: _Optional[float] = ..., target_gap: _Optional[float] = ...) -> None: ...

class DesignMetadata(_message.Message):
    __slots__ = ("study", "attempt", "progress")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    study: str
    attempt: int
    progress: DesignProgress
    def __init__(self, study: _Optional[str] = ..., attempt: _Optional[int] = ..., progress: _Optional[_Union[DesignProgress, _Mapping]] = ...) -> None: ...

class CreateStudyRequest(_message.Message):
    __slots__ = ("study",)
    STUDY_FIELD_NUMBER: _ClassVar[int]
    study: Study
    def __init__(self, study: _Optional[_Union[Study, _Mapping]] = ...) -> None: ...

class GetStudyRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetStudyResponse(_message.Message):
    __slots__ = ("study",)
    STUDY_FIELD_NUMBER: _ClassVar[int]
    study: Study
    def __init__(self, study: _Optional[_Union[Study, _Mapping]] = ...) -> None: ...

class ListStudiesRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListStudiesResponse(_message.Message):
    __slots__ = ("studies", "next_page_token")
    STUDIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    studies: _containers.RepeatedCompositeFieldContainer[Study]
    next_page_token: str
    def __init__(self, studies: _Optional[_Iterable[_Union[Study, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteStudyRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteStudyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NextQuestionsRequest(_message.Message):
    __slots__ = ("study", "count", "request_id")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    study: str
    count: int
    request_id: str
    def __init__(self, study: _Optional[str] = ..., count: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class NextQuestionsResponse(_message.Message):
    __slots__ = ("questions", "asked_count", "answered_count", "budget", "gathered")
    QUESTIONS_FIELD_NUMBER: _ClassVar[int]
    ASKED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_COUNT_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    GATHERED_FIELD_NUMBER: _ClassVar[int]
    questions: _containers.RepeatedCompositeFieldContainer[Question]
    asked_count: int
    answered_count: int
    budget: int
    gathered: float
    def __init__(self, questions: _Optional[_Iterable[_Union[Question, _Mapping]]] = ..., asked_count: _Optional[int] = ..., answered_count: _Optional[int] = ..., budget: _Optional[int] = ..., gathered: _Optional[float] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("question_id", "query_id", "item_ids")
    QUESTION_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    question_id: str
    query_id: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, question_id: _Optional[str] = ..., query_id: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class SubmitAnswersRequest(_message.Message):
    __slots__ = ("study", "answers")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    study: str
    answers: _containers.RepeatedCompositeFieldContainer[Answer]
    def __init__(self, study: _Optional[str] = ..., answers: _Optional[_Iterable[_Union[Answer, _Mapping]]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("question_id", "ratings", "ranking", "chosen_item_id", "tiers", "best_worst", "declined", "respondent")
    QUESTION_ID_FIELD_NUMBER: _ClassVar[int]
    RATINGS_FIELD_NUMBER: _ClassVar[int]
    RANKING_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    BEST_WORST_FIELD_NUMBER: _ClassVar[int]
    DECLINED_FIELD_NUMBER: _ClassVar[int]
    RESPONDENT_FIELD_NUMBER: _ClassVar[int]
    question_id: str
    ratings: RatingsAnswer
    ranking: RankingAnswer
    chosen_item_id: str
    tiers: TiersAnswer
    best_worst: BestWorstAnswer
    declined: DeclinedAnswer
    respondent: str
    def __init__(self, question_id: _Optional[str] = ..., ratings: _Optional[_Union[RatingsAnswer, _Mapping]] = ..., ranking: _Optional[_Union[RankingAnswer, _Mapping]] = ..., chosen_item_id: _Optional[str] = ..., tiers: _Optional[_Union[TiersAnswer, _Mapping]] = ..., best_worst: _Optional[_Union[BestWorstAnswer, _Mapping]] = ..., declined: _Optional[_Union[DeclinedAnswer, _Mapping]] = ..., respondent: _Optional[str] = ...) -> None: ...

class TiersAnswer(_message.Message):
    __slots__ = ("tiers",)
    TIERS_FIELD_NUMBER: _ClassVar[int]
    tiers: _containers.RepeatedCompositeFieldContainer[Tier]
    def __init__(self, tiers: _Optional[_Iterable[_Union[Tier, _Mapping]]] = ...) -> None: ...

class Tier(_message.Message):
    __slots__ = ("item_ids",)
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class BestWorstAnswer(_message.Message):
    __slots__ = ("best_item_id", "worst_item_id")
    BEST_ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    WORST_ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    best_item_id: str
    worst_item_id: str
    def __init__(self, best_item_id: _Optional[str] = ..., worst_item_id: _Optional[str] = ...) -> None: ...

class DeclinedAnswer(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: DeclineReason
    def __init__(self, reason: _Optional[_Union[DeclineReason, str]] = ...) -> None: ...

class RatingsAnswer(_message.Message):
    __slots__ = ("ratings",)
    RATINGS_FIELD_NUMBER: _ClassVar[int]
    ratings: _containers.RepeatedCompositeFieldContainer[ItemRating]
    def __init__(self, ratings: _Optional[_Iterable[_Union[ItemRating, _Mapping]]] = ...) -> None: ...

class ItemRating(_message.Message):
    __slots__ = ("item_id", "value")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    value: float
    def __init__(self, item_id: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class RankingAnswer(_message.Message):
    __slots__ = ("item_ids",)
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class SubmitAnswersResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AnswerResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AnswerResult, _Mapping]]] = ...) -> None: ...

class AnswerResult(_message.Message):
    __slots__ = ("outcome", "error")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    outcome: AnswerOutcome
    error: _status_pb2.Status
    def __init__(self, outcome: _Optional[_Union[AnswerOutcome, str]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class StudyLink(_message.Message):
    __slots__ = ("link_id", "most_answers", "answers_each", "expire_time", "title", "thanks", "accent_color", "background_color", "text_color", "answered_count", "respondent_count", "last_answer_time", "create_time", "state")
    LINK_ID_FIELD_NUMBER: _ClassVar[int]
    MOST_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_EACH_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    THANKS_FIELD_NUMBER: _ClassVar[int]
    ACCENT_COLOR_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_COLOR_FIELD_NUMBER: _ClassVar[int]
    TEXT_COLOR_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_COUNT_FIELD_NUMBER: _ClassVar[int]
    RESPONDENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_ANSWER_TIME_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    link_id: str
    most_answers: int
    answers_each: int
    expire_time: _timestamp_pb2.Timestamp
    title: str
    thanks: str
    accent_color: str
    background_color: str
    text_color: str
    answered_count: int
    respondent_count: int
    last_answer_time: _timestamp_pb2.Timestamp
    create_time: _timestamp_pb2.Timestamp
    state: LinkState
    def __init__(self, link_id: _Optional[str] = ..., most_answers: _Optional[int] = ..., answers_each: _Optional[int] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., title: _Optional[str] = ..., thanks: _Optional[str] = ..., accent_color: _Optional[str] = ..., background_color: _Optional[str] = ..., text_color: _Optional[str] = ..., answered_count: _Optional[int] = ..., respondent_count: _Optional[int] = ..., last_answer_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., state: _Optional[_Union[LinkState, str]] = ...) -> None: ...

class CreateLinkRequest(_message.Message):
    __slots__ = ("study", "link")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    study: str
    link: StudyLink
    def __init__(self, study: _Optional[str] = ..., link: _Optional[_Union[StudyLink, _Mapping]] = ...) -> None: ...

class CreateLinkResponse(_message.Message):
    __slots__ = ("link", "token")
    LINK_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    link: StudyLink
    token: str
    def __init__(self, link: _Optional[_Union[StudyLink, _Mapping]] = ..., token: _Optional[str] = ...) -> None: ...

class ListLinksRequest(_message.Message):
    __slots__ = ("study",)
    STUDY_FIELD_NUMBER: _ClassVar[int]
    study: str
    def __init__(self, study: _Optional[str] = ...) -> None: ...

class ListLinksResponse(_message.Message):
    __slots__ = ("links",)
    LINKS_FIELD_NUMBER: _ClassVar[int]
    links: _containers.RepeatedCompositeFieldContainer[StudyLink]
    def __init__(self, links: _Optional[_Iterable[_Union[StudyLink, _Mapping]]] = ...) -> None: ...

class RevokeLinkRequest(_message.Message):
    __slots__ = ("study", "link_id")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    LINK_ID_FIELD_NUMBER: _ClassVar[int]
    study: str
    link_id: str
    def __init__(self, study: _Optional[str] = ..., link_id: _Optional[str] = ...) -> None: ...

class RevokeLinkResponse(_message.Message):
    __slots__ = ("link",)
    LINK_FIELD_NUMBER: _ClassVar[int]
    link: StudyLink
    def __init__(self, link: _Optional[_Union[StudyLink, _Mapping]] = ...) -> None: ...

class GetLinkQuestionsRequest(_message.Message):
    __slots__ = ("study", "token", "respondent", "count")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    RESPONDENT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    study: str
    token: str
    respondent: str
    count: int
    def __init__(self, study: _Optional[str] = ..., token: _Optional[str] = ..., respondent: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class GetLinkQuestionsResponse(_message.Message):
    __slots__ = ("respondent", "answer_kind", "link", "answered_count", "questions")
    RESPONDENT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_KIND_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUESTIONS_FIELD_NUMBER: _ClassVar[int]
    respondent: str
    answer_kind: AnswerKind
    link: StudyLink
    answered_count: int
    questions: _containers.RepeatedCompositeFieldContainer[LinkQuestion]
    def __init__(self, respondent: _Optional[str] = ..., answer_kind: _Optional[_Union[AnswerKind, str]] = ..., link: _Optional[_Union[StudyLink, _Mapping]] = ..., answered_count: _Optional[int] = ..., questions: _Optional[_Iterable[_Union[LinkQuestion, _Mapping]]] = ...) -> None: ...

class LinkQuestion(_message.Message):
    __slots__ = ("question_id", "number", "query_id", "items")
    QUESTION_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    question_id: str
    number: int
    query_id: str
    items: _containers.RepeatedCompositeFieldContainer[StudyItem]
    def __init__(self, question_id: _Optional[str] = ..., number: _Optional[int] = ..., query_id: _Optional[str] = ..., items: _Optional[_Iterable[_Union[StudyItem, _Mapping]]] = ...) -> None: ...

class SubmitLinkAnswerRequest(_message.Message):
    __slots__ = ("study", "token", "respondent", "answer")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    RESPONDENT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    study: str
    token: str
    respondent: str
    answer: Answer
    def __init__(self, study: _Optional[str] = ..., token: _Optional[str] = ..., respondent: _Optional[str] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ...) -> None: ...

class SubmitLinkAnswerResponse(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: AnswerOutcome
    def __init__(self, outcome: _Optional[_Union[AnswerOutcome, str]] = ...) -> None: ...

class ImportAnswersRequest(_message.Message):
    __slots__ = ("study", "import_id", "first_row", "rows")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    IMPORT_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    study: str
    import_id: str
    first_row: int
    rows: _containers.RepeatedCompositeFieldContainer[PastAnswer]
    def __init__(self, study: _Optional[str] = ..., import_id: _Optional[str] = ..., first_row: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[PastAnswer, _Mapping]]] = ...) -> None: ...

class PastAnswer(_message.Message):
    __slots__ = ("query_id", "item_ids", "ratings", "ranking", "chosen_item_id", "tiers", "best_worst", "declined", "respondent")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    RATINGS_FIELD_NUMBER: _ClassVar[int]
    RANKING_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    BEST_WORST_FIELD_NUMBER: _ClassVar[int]
    DECLINED_FIELD_NUMBER: _ClassVar[int]
    RESPONDENT_FIELD_NUMBER: _ClassVar[int]
    query_id: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    ratings: RatingsAnswer
    ranking: RankingAnswer
    chosen_item_id: str
    tiers: TiersAnswer
    best_worst: BestWorstAnswer
    declined: DeclinedAnswer
    respondent: str
    def __init__(self, query_id: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ..., ratings: _Optional[_Union[RatingsAnswer, _Mapping]] = ..., ranking: _Optional[_Union[RankingAnswer, _Mapping]] = ..., chosen_item_id: _Optional[str] = ..., tiers: _Optional[_Union[TiersAnswer, _Mapping]] = ..., best_worst: _Optional[_Union[BestWorstAnswer, _Mapping]] = ..., declined: _Optional[_Union[DeclinedAnswer, _Mapping]] = ..., respondent: _Optional[str] = ...) -> None: ...

class ImportAnswersResponse(_message.Message):
    __slots__ = ("next_row", "outcome")
    NEXT_ROW_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    next_row: int
    outcome: AnswerOutcome
    def __init__(self, next_row: _Optional[int] = ..., outcome: _Optional[_Union[AnswerOutcome, str]] = ...) -> None: ...

class GetAnswerImportRequest(_message.Message):
    __slots__ = ("study", "import_id")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    IMPORT_ID_FIELD_NUMBER: _ClassVar[int]
    study: str
    import_id: str
    def __init__(self, study: _Optional[str] = ..., import_id: _Optional[str] = ...) -> None: ...

class GetAnswerImportResponse(_message.Message):
    __slots__ = ("next_row",)
    NEXT_ROW_FIELD_NUMBER: _ClassVar[int]
    next_row: int
    def __init__(self, next_row: _Optional[int] = ...) -> None: ...

class GetPreferencesRequest(_message.Message):
    __slots__ = ("study", "page_size", "page_token", "model", "compare")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    COMPARE_FIELD_NUMBER: _ClassVar[int]
    study: str
    page_size: int
    page_token: str
    model: PreferenceModel
    compare: bool
    def __init__(self, study: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., model: _Optional[_Union[PreferenceModel, str]] = ..., compare: bool = ...) -> None: ...

class GetPreferencesResponse(_message.Message):
    __slots__ = ("preferences", "next_page_token", "answered_count", "gathered", "model", "scores", "compared_count", "skipped_count", "none_of_these_count", "agreement", "agreement_count", "respondents", "respondent_count")
    PREFERENCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_COUNT_FIELD_NUMBER: _ClassVar[int]
    GATHERED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    COMPARED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    NONE_OF_THESE_COUNT_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    RESPONDENTS_FIELD_NUMBER: _ClassVar[int]
    RESPONDENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    preferences: _containers.RepeatedCompositeFieldContainer[QueryPreferences]
    next_page_token: str
    answered_count: int
    gathered: float
    model: PreferenceModel
    scores: _containers.RepeatedCompositeFieldContainer[ModelScore]
    compared_count: int
    skipped_count: int
    none_of_these_count: int
    agreement: float
    agreement_count: int
    respondents: _containers.RepeatedCompositeFieldContainer[Respondent]
    respondent_count: int
    def __init__(self, preferences: _Optional[_Iterable[_Union[QueryPreferences, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., answered_count: _Optional[int] = ..., gathered: _Optional[float] = ..., model: _Optional[_Union[PreferenceModel, str]] = ..., scores: _Optional[_Iterable[_Union[ModelScore, _Mapping]]] = ..., compared_count: _Optional[int] = ..., skipped_count: _Optional[int] = ..., none_of_these_count: _Optional[int] = ..., agreement: _Optional[float] = ..., agreement_count: _Optional[int] = ..., respondents: _Optional[_Iterable[_Union[Respondent, _Mapping]]] = ..., respondent_count: _Optional[int] = ...) -> None: ...

class Respondent(_message.Message):
    __slots__ = ("respondent", "answered_count", "careless_probability")
    RESPONDENT_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CARELESS_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    respondent: str
    answered_count: int
    careless_probability: float
    def __init__(self, respondent: _Optional[str] = ..., answered_count: _Optional[int] = ..., careless_probability: _Optional[float] = ...) -> None: ...

class ModelScore(_message.Message):
    __slots__ = ("model", "log_probability", "standard_error", "behind", "behind_standard_error")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    STANDARD_ERROR_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    BEHIND_STANDARD_ERROR_FIELD_NUMBER: _ClassVar[int]
    model: PreferenceModel
    log_probability: float
    standard_error: float
    behind: float
    behind_standard_error: float
    def __init__(self, model: _Optional[_Union[PreferenceModel, str]] = ..., log_probability: _Optional[float] = ..., standard_error: _Optional[float] = ..., behind: _Optional[float] = ..., behind_standard_error: _Optional[float] = ...) -> None: ...

class QueryPreferences(_message.Message):
    __slots__ = ("query_id", "items")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    query_id: str
    items: _containers.RepeatedCompositeFieldContainer[ItemPreference]
    def __init__(self, query_id: _Optional[str] = ..., items: _Optional[_Iterable[_Union[ItemPreference, _Mapping]]] = ...) -> None: ...

class ItemPreference(_message.Message):
    __slots__ = ("item_id", "utility", "standard_deviation", "rank")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    UTILITY_FIELD_NUMBER: _ClassVar[int]
    STANDARD_DEVIATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    utility: float
    standard_deviation: float
    rank: int
    def __init__(self, item_id: _Optional[str] = ..., utility: _Optional[float] = ..., standard_deviation: _Optional[float] = ..., rank: _Optional[int] = ...) -> None: ...

class ExportStudyRequest(_message.Message):
    __slots__ = ("study", "cursor")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    study: str
    cursor: str
    def __init__(self, study: _Optional[str] = ..., cursor: _Optional[str] = ...) -> None: ...

class ExportStudyResponse(_message.Message):
    __slots__ = ("lines", "next_cursor")
    LINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    next_cursor: str
    def __init__(self, lines: _Optional[_Iterable[str]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class ImportStudyRequest(_message.Message):
    __slots__ = ("study", "import_id", "first_line", "lines")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    IMPORT_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_LINE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    study: str
    import_id: str
    first_line: int
    lines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, study: _Optional[str] = ..., import_id: _Optional[str] = ..., first_line: _Optional[int] = ..., lines: _Optional[_Iterable[str]] = ...) -> None: ...

class ImportStudyResponse(_message.Message):
    __slots__ = ("next_line", "log_position")
    NEXT_LINE_FIELD_NUMBER: _ClassVar[int]
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    next_line: int
    log_position: int
    def __init__(self, next_line: _Optional[int] = ..., log_position: _Optional[int] = ...) -> None: ...
