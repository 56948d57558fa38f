from foedus.protos.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_COUNTED: _ClassVar[Outcome]
    OUTCOME_REJECTED: _ClassVar[Outcome]
    OUTCOME_LATE: _ClassVar[Outcome]
    OUTCOME_CANCELLED: _ClassVar[Outcome]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_COUNTED: Outcome
OUTCOME_REJECTED: Outcome
OUTCOME_LATE: Outcome
OUTCOME_CANCELLED: Outcome

class SiteMessage(_message.Message):
    __slots__ = ("hello", "heartbeat", "refusal", "evaluation", "secure")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    SECURE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    heartbeat: Heartbeat
    refusal: Refusal
    evaluation: Evaluation
    secure: SecureMessage
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., evaluation: _Optional[_Union[Evaluation, _Mapping]] = ..., secure: _Optional[_Union[SecureMessage, _Mapping]] = ...) -> None: ...

class SecureMessage(_message.Message):
    __slots__ = ("work", "body", "words")
    WORK_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    work: _common_pb2.Work
    body: bytes
    words: bytes
    def __init__(self, work: _Optional[_Union[_common_pb2.Work, _Mapping]] = ..., body: _Optional[bytes] = ..., words: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("version", "tasks", "unix_seconds")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    version: str
    tasks: _containers.RepeatedCompositeFieldContainer[TaskOffer]
    unix_seconds: float
    def __init__(self, version: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[TaskOffer, _Mapping]]] = ..., unix_seconds: _Optional[float] = ...) -> None: ...

class TaskOffer(_message.Message):
    __slots__ = ("name", "code_sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CODE_SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    code_sha256: str
    def __init__(self, name: _Optional[str] = ..., code_sha256: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("work", "progress")
    WORK_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    work: _common_pb2.Work
    progress: int
    def __init__(self, work: _Optional[_Union[_common_pb2.Work, _Mapping]] = ..., progress: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("work", "code", "reason")
    WORK_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    work: _common_pb2.Work
    code: str
    reason: str
    def __init__(self, work: _Optional[_Union[_common_pb2.Work, _Mapping]] = ..., code: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Evaluation(_message.Message):
    __slots__ = ("work", "model_sha256", "num_examples", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    WORK_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    NUM_EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    work: _common_pb2.Work
    model_sha256: str
    num_examples: int
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, work: _Optional[_Union[_common_pb2.Work, _Mapping]] = ..., model_sha256: _Optional[str] = ..., num_examples: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ServerMessage(_message.Message):
    __slots__ = ("welcome", "assignment", "release", "secure", "question")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    SECURE_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    assignment: Assignment
    release: Release
    secure: SecureMessage
    question: Question
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., secure: _Optional[_Union[SecureMessage, _Mapping]] = ..., question: _Optional[_Union[Question, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("version", "federation", "unix_seconds", "heartbeat_seconds")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    version: str
    federation: str
    unix_seconds: float
    heartbeat_seconds: float
    def __init__(self, version: _Optional[str] = ..., federation: _Optional[str] = ..., unix_seconds: _Optional[float] = ..., heartbeat_seconds: _Optional[float] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("work", "run_name", "task", "model_sha256", "model_bytes", "layout_sha256", "training", "cohort_size", "rounds", "deadline_seconds", "seed", "local_buffers", "protection", "examples_per_weight")
    WORK_FIELD_NUMBER: _ClassVar[int]
    RUN_NAME_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    MODEL_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_SHA256_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    COHORT_SIZE_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    LOCAL_BUFFERS_FIELD_NUMBER: _ClassVar[int]
    PROTECTION_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_PER_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    work: _common_pb2.Work
    run_name: str
    task: str
    model_sha256: str
    model_bytes: int
    layout_sha256: str
    training: LocalTraining
    cohort_size: int
    rounds: int
    deadline_seconds: float
    seed: int
    local_buffers: bool
    protection: str
    examples_per_weight: int
    def __init__(self, work: _Optional[_Union[_common_pb2.Work, _Mapping]] = ..., run_name: _Optional[str] = ..., task: _Optional[str] = ..., model_sha256: _Optional[str] = ..., model_bytes: _Optional[int] = ..., layout_sha256: _Optional[str] = ..., training: _Optional[_Union[LocalTraining, _Mapping]] = ..., cohort_size: _Optional[int] = ..., rounds: _Optional[int] = ..., deadline_seconds: _Optional[float] = ..., seed: _Optional[int] = ..., local_buffers: bool = ..., protection: _Optional[str] = ..., examples_per_weight: _Optional[int] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("work", "query_json", "cohort_size")
    WORK_FIELD_NUMBER: _ClassVar[int]
    QUERY_JSON_FIELD_NUMBER: _ClassVar[int]
    COHORT_SIZE_FIELD_NUMBER: _ClassVar[int]
    work: _common_pb2.Work
    query_json: str
    cohort_size: int
    def __init__(self, work: _Optional[_Union[_common_pb2.Work, _Mapping]] = ..., query_json: _Optional[str] = ..., cohort_size: _Optional[int] = ...) -> None: ...

class LocalTraining(_message.Message):
    __slots__ = ("epochs", "steps", "batch_size", "optimizer", "learning_rate", "momentum", "weight_decay", "proximal_mu", "max_seconds")
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    PROXIMAL_MU_FIELD_NUMBER: _ClassVar[int]
    MAX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    epochs: int
    steps: int
    batch_size: int
    optimizer: str
    learning_rate: float
    momentum: float
    weight_decay: float
    proximal_mu: float
    max_seconds: float
    def __init__(self, epochs: _Optional[int] = ..., steps: _Optional[int] = ..., batch_size: _Optional[int] = ..., optimizer: _Optional[str] = ..., learning_rate: _Optional[float] = ..., momentum: _Optional[float] = ..., weight_decay: _Optional[float] = ..., proximal_mu: _Optional[float] = ..., max_seconds: _Optional[float] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("work", "outcome", "reason")
    WORK_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    work: _common_pb2.Work
    outcome: Outcome
    reason: str
    def __init__(self, work: _Optional[_Union[_common_pb2.Work, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., reason: _Optional[str] = ...) -> None: ...
