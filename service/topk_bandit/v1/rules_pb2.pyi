from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SlateRule(_message.Message):
    __slots__ = ("exclude", "filter", "pin", "count", "apart", "exposure", "frequency", "may_relax")
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    APART_FIELD_NUMBER: _ClassVar[int]
    EXPOSURE_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_FIELD_NUMBER: _ClassVar[int]
    MAY_RELAX_FIELD_NUMBER: _ClassVar[int]
    exclude: ExcludedItems
    filter: str
    pin: PinnedItems
    count: ItemCount
    apart: ItemGroup
    exposure: ItemExposure
    frequency: ItemFrequency
    may_relax: bool
    def __init__(self, exclude: _Optional[_Union[ExcludedItems, _Mapping]] = ..., filter: _Optional[str] = ..., pin: _Optional[_Union[PinnedItems, _Mapping]] = ..., count: _Optional[_Union[ItemCount, _Mapping]] = ..., apart: _Optional[_Union[ItemGroup, _Mapping]] = ..., exposure: _Optional[_Union[ItemExposure, _Mapping]] = ..., frequency: _Optional[_Union[ItemFrequency, _Mapping]] = ..., may_relax: bool = ...) -> None: ...

class SlateRules(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[SlateRule]
    def __init__(self, rules: _Optional[_Iterable[_Union[SlateRule, _Mapping]]] = ...) -> None: ...

class ExcludedItems(_message.Message):
    __slots__ = ("item_ids",)
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class PinnedItems(_message.Message):
    __slots__ = ("position", "item_ids")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    position: int
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, position: _Optional[int] = ..., item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ItemCount(_message.Message):
    __slots__ = ("group", "at_least", "at_most")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    AT_MOST_FIELD_NUMBER: _ClassVar[int]
    group: ItemGroup
    at_least: int
    at_most: int
    def __init__(self, group: _Optional[_Union[ItemGroup, _Mapping]] = ..., at_least: _Optional[int] = ..., at_most: _Optional[int] = ...) -> None: ...

class ItemGroup(_message.Message):
    __slots__ = ("feature", "value", "shown_fewer_than", "item_ids")
    FEATURE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FEWER_THAN_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    feature: str
    value: str
    shown_fewer_than: int
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, feature: _Optional[str] = ..., value: _Optional[str] = ..., shown_fewer_than: _Optional[int] = ..., item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ItemFrequency(_message.Message):
    __slots__ = ("group", "at_most", "within_seconds")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    AT_MOST_FIELD_NUMBER: _ClassVar[int]
    WITHIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    group: ItemGroup
    at_most: int
    within_seconds: int
    def __init__(self, group: _Optional[_Union[ItemGroup, _Mapping]] = ..., at_most: _Optional[int] = ..., within_seconds: _Optional[int] = ...) -> None: ...

class ItemExposure(_message.Message):
    __slots__ = ("group", "share")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    group: ItemGroup
    share: float
    def __init__(self, group: _Optional[_Union[ItemGroup, _Mapping]] = ..., share: _Optional[float] = ...) -> None: ...
