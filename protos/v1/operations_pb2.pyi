from foedus.protos.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitMessage(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: SubmitHeader
    chunk: _common_pb2.Chunk
    def __init__(self, header: _Optional[_Union[SubmitHeader, _Mapping]] = ..., chunk: _Optional[_Union[_common_pb2.Chunk, _Mapping]] = ...) -> None: ...

class SubmitHeader(_message.Message):
    __slots__ = ("plan_json", "model_bytes", "model_sha256")
    PLAN_JSON_FIELD_NUMBER: _ClassVar[int]
    MODEL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    plan_json: str
    model_bytes: int
    model_sha256: str
    def __init__(self, plan_json: _Optional[str] = ..., model_bytes: _Optional[int] = ..., model_sha256: _Optional[str] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRunsReply(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    def __init__(self, runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("id", "name", "state", "reason", "plan_json", "created_unix_seconds", "round", "initial_sha256", "last_sha256", "best_sha256", "rounds")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PLAN_JSON_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    INITIAL_SHA256_FIELD_NUMBER: _ClassVar[int]
    LAST_SHA256_FIELD_NUMBER: _ClassVar[int]
    BEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    state: str
    reason: str
    plan_json: str
    created_unix_seconds: float
    round: int
    initial_sha256: str
    last_sha256: str
    best_sha256: str
    rounds: _containers.RepeatedCompositeFieldContainer[Round]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., plan_json: _Optional[str] = ..., created_unix_seconds: _Optional[float] = ..., round: _Optional[int] = ..., initial_sha256: _Optional[str] = ..., last_sha256: _Optional[str] = ..., best_sha256: _Optional[str] = ..., rounds: _Optional[_Iterable[_Union[Round, _Mapping]]] = ...) -> None: ...

class Round(_message.Message):
    __slots__ = ("number", "state", "reason", "model_sha256", "started_unix_seconds", "finished_unix_seconds", "training_metrics", "evaluation_metrics", "participations")
    class TrainingMetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class EvaluationMetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    STARTED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TRAINING_METRICS_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_METRICS_FIELD_NUMBER: _ClassVar[int]
    PARTICIPATIONS_FIELD_NUMBER: _ClassVar[int]
    number: int
    state: str
    reason: str
    model_sha256: str
    started_unix_seconds: float
    finished_unix_seconds: float
    training_metrics: _containers.ScalarMap[str, float]
    evaluation_metrics: _containers.ScalarMap[str, float]
    participations: _containers.RepeatedCompositeFieldContainer[Participation]
    def __init__(self, number: _Optional[int] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., model_sha256: _Optional[str] = ..., started_unix_seconds: _Optional[float] = ..., finished_unix_seconds: _Optional[float] = ..., training_metrics: _Optional[_Mapping[str, float]] = ..., evaluation_metrics: _Optional[_Mapping[str, float]] = ..., participations: _Optional[_Iterable[_Union[Participation, _Mapping]]] = ...) -> None: ...

class Participation(_message.Message):
    __slots__ = ("site", "phase", "verdict", "code", "reason", "num_examples", "metrics", "weight", "score")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SITE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    site: str
    phase: _common_pb2.Phase
    verdict: str
    code: str
    reason: str
    num_examples: int
    metrics: _containers.ScalarMap[str, float]
    weight: float
    score: float
    def __init__(self, site: _Optional[str] = ..., phase: _Optional[_Union[_common_pb2.Phase, str]] = ..., verdict: _Optional[str] = ..., code: _Optional[str] = ..., reason: _Optional[str] = ..., num_examples: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., weight: _Optional[float] = ..., score: _Optional[float] = ...) -> None: ...

class RunEvent(_message.Message):
    __slots__ = ("unix_seconds", "name", "run", "round", "site", "detail", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    unix_seconds: float
    name: str
    run: Run
    round: int
    site: str
    detail: str
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, unix_seconds: _Optional[float] = ..., name: _Optional[str] = ..., run: _Optional[_Union[Run, _Mapping]] = ..., round: _Optional[int] = ..., site: _Optional[str] = ..., detail: _Optional[str] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ChangeRunRequest(_message.Message):
    __slots__ = ("run", "action")
    RUN_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    run: str
    action: str
    def __init__(self, run: _Optional[str] = ..., action: _Optional[str] = ...) -> None: ...

class FetchModelRequest(_message.Message):
    __slots__ = ("run", "which")
    RUN_FIELD_NUMBER: _ClassVar[int]
    WHICH_FIELD_NUMBER: _ClassVar[int]
    run: str
    which: str
    def __init__(self, run: _Optional[str] = ..., which: _Optional[str] = ...) -> None: ...

class SubmitQueryRequest(_message.Message):
    __slots__ = ("query_json",)
    QUERY_JSON_FIELD_NUMBER: _ClassVar[int]
    query_json: str
    def __init__(self, query_json: _Optional[str] = ...) -> None: ...

class QueryRequest(_message.Message):
    __slots__ = ("query", "wait_seconds")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    query: str
    wait_seconds: float
    def __init__(self, query: _Optional[str] = ..., wait_seconds: _Optional[float] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("id", "name", "state", "reason", "query_json", "created_unix_seconds", "finished_unix_seconds", "answer_json", "sites")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    QUERY_JSON_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_JSON_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    state: str
    reason: str
    query_json: str
    created_unix_seconds: float
    finished_unix_seconds: float
    answer_json: str
    sites: _containers.RepeatedCompositeFieldContainer[AskedSite]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., query_json: _Optional[str] = ..., created_unix_seconds: _Optional[float] = ..., finished_unix_seconds: _Optional[float] = ..., answer_json: _Optional[str] = ..., sites: _Optional[_Iterable[_Union[AskedSite, _Mapping]]] = ...) -> None: ...

class AskedSite(_message.Message):
    __slots__ = ("site", "verdict", "code", "reason")
    SITE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    site: str
    verdict: str
    code: str
    reason: str
    def __init__(self, site: _Optional[str] = ..., verdict: _Optional[str] = ..., code: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ListQueriesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQueriesReply(_message.Message):
    __slots__ = ("queries",)
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[Query]
    def __init__(self, queries: _Optional[_Iterable[_Union[Query, _Mapping]]] = ...) -> None: ...

class InviteRequest(_message.Message):
    __slots__ = ("name", "role", "lifetime_seconds", "approved")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    APPROVED_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    lifetime_seconds: float
    approved: bool
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., lifetime_seconds: _Optional[float] = ..., approved: bool = ...) -> None: ...

class InviteReply(_message.Message):
    __slots__ = ("invitation", "expires_unix_seconds")
    INVITATION_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    invitation: str
    expires_unix_seconds: float
    def __init__(self, invitation: _Optional[str] = ..., expires_unix_seconds: _Optional[float] = ...) -> None: ...

class ListSitesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSitesReply(_message.Message):
    __slots__ = ("sites",)
    SITES_FIELD_NUMBER: _ClassVar[int]
    sites: _containers.RepeatedCompositeFieldContainer[Site]
    def __init__(self, sites: _Optional[_Iterable[_Union[Site, _Mapping]]] = ...) -> None: ...

class Site(_message.Message):
    __slots__ = ("name", "role", "state", "key_sha256", "origin", "last_seen_unix_seconds", "certificate_expires_unix_seconds", "connected", "tasks", "version", "clock_skew_seconds", "working_on", "rejection_rate", "rounds_judged", "signing_key")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    KEY_SHA256_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_EXPIRES_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLOCK_SKEW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKING_ON_FIELD_NUMBER: _ClassVar[int]
    REJECTION_RATE_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_JUDGED_FIELD_NUMBER: _ClassVar[int]
    SIGNING_KEY_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    state: str
    key_sha256: str
    origin: str
    last_seen_unix_seconds: float
    certificate_expires_unix_seconds: float
    connected: bool
    tasks: _containers.RepeatedScalarFieldContainer[str]
    version: str
    clock_skew_seconds: float
    working_on: str
    rejection_rate: float
    rounds_judged: int
    signing_key: bytes
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., state: _Optional[str] = ..., key_sha256: _Optional[str] = ..., origin: _Optional[str] = ..., last_seen_unix_seconds: _Optional[float] = ..., certificate_expires_unix_seconds: _Optional[float] = ..., connected: bool = ..., tasks: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., clock_skew_seconds: _Optional[float] = ..., working_on: _Optional[str] = ..., rejection_rate: _Optional[float] = ..., rounds_judged: _Optional[int] = ..., signing_key: _Optional[bytes] = ...) -> None: ...

class ShowRosterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Roster(_message.Message):
    __slots__ = ("version", "signed")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    version: int
    signed: bytes
    def __init__(self, version: _Optional[int] = ..., signed: _Optional[bytes] = ...) -> None: ...

class ChangeSiteRequest(_message.Message):
    __slots__ = ("name", "action", "role")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    action: str
    role: str
    def __init__(self, name: _Optional[str] = ..., action: _Optional[str] = ..., role: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("version", "federation", "draining", "sites_connected", "runs_active", "kernel")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    SITES_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    RUNS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    version: str
    federation: str
    draining: bool
    sites_connected: int
    runs_active: int
    kernel: str
    def __init__(self, version: _Optional[str] = ..., federation: _Optional[str] = ..., draining: bool = ..., sites_connected: _Optional[int] = ..., runs_active: _Optional[int] = ..., kernel: _Optional[str] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
