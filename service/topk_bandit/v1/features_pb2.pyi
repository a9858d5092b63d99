from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FeatureSchema(_message.Message):
    __slots__ = ("features",)
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedCompositeFieldContainer[Feature]
    def __init__(self, features: _Optional[_Iterable[_Union[Feature, _Mapping]]] = ...) -> None: ...

class Feature(_message.Message):
    __slots__ = ("name", "numeric", "categorical", "boolean", "labels", "vector")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMERIC_FIELD_NUMBER: _ClassVar[int]
    CATEGORICAL_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    numeric: NumericFeature
    categorical: CategoricalFeature
    boolean: BooleanFeature
    labels: LabelSetFeature
    vector: VectorFeature
    def __init__(self, name: _Optional[str] = ..., numeric: _Optional[_Union[NumericFeature, _Mapping]] = ..., categorical: _Optional[_Union[CategoricalFeature, _Mapping]] = ..., boolean: _Optional[_Union[BooleanFeature, _Mapping]] = ..., labels: _Optional[_Union[LabelSetFeature, _Mapping]] = ..., vector: _Optional[_Union[VectorFeature, _Mapping]] = ...) -> None: ...

class NumericFeature(_message.Message):
    __slots__ = ("min", "max", "unit", "log_scale")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    LOG_SCALE_FIELD_NUMBER: _ClassVar[int]
    min: float
    max: float
    unit: str
    log_scale: bool
    def __init__(self, min: _Optional[float] = ..., max: _Optional[float] = ..., unit: _Optional[str] = ..., log_scale: bool = ...) -> None: ...

class CategoricalFeature(_message.Message):
    __slots__ = ("values", "buckets")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    buckets: int
    def __init__(self, values: _Optional[_Iterable[str]] = ..., buckets: _Optional[int] = ...) -> None: ...

class BooleanFeature(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LabelSetFeature(_message.Message):
    __slots__ = ("values", "buckets")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    buckets: int
    def __init__(self, values: _Optional[_Iterable[str]] = ..., buckets: _Optional[int] = ...) -> None: ...

class VectorFeature(_message.Message):
    __slots__ = ("dimension", "weight")
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    dimension: int
    weight: float
    def __init__(self, dimension: _Optional[int] = ..., weight: _Optional[float] = ...) -> None: ...

class FeatureValue(_message.Message):
    __slots__ = ("number", "text", "boolean", "labels", "vector")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    number: float
    text: str
    boolean: bool
    labels: Labels
    vector: Numbers
    def __init__(self, number: _Optional[float] = ..., text: _Optional[str] = ..., boolean: bool = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., vector: _Optional[_Union[Numbers, _Mapping]] = ...) -> None: ...

class Labels(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class Numbers(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class FeatureStats(_message.Message):
    __slots__ = ("name", "centre", "scale", "frozen", "clamped_count", "unknown_count", "missing_count", "share")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CENTRE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    CLAMPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_COUNT_FIELD_NUMBER: _ClassVar[int]
    MISSING_COUNT_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    name: str
    centre: float
    scale: float
    frozen: bool
    clamped_count: int
    unknown_count: int
    missing_count: int
    share: float
    def __init__(self, name: _Optional[str] = ..., centre: _Optional[float] = ..., scale: _Optional[float] = ..., frozen: bool = ..., clamped_count: _Optional[int] = ..., unknown_count: _Optional[int] = ..., missing_count: _Optional[int] = ..., share: _Optional[float] = ...) -> None: ...
