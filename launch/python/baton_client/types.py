"""What a program sees: requests, parts of answers, results, status. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Optional, Sequence


class BatonError(Exception):
    """A refusal or failure: `code` for programs ("busy", "invalid_argument"), `text` for people."""

    def __init__(self, code: str, text: str, retry_after_ms: int = 0):
        super().__init__(f"{text} ({code})")
        self.code = code
        self.text = text
        self.retry_after_ms = retry_after_ms  # 0: repeating it will not help


class TopToken(NamedTuple):
    id: int
    logprob: float


@dataclass
class Request:
    """Give exactly one of `messages`, `text`, `ids`."""

    messages: Sequence[Dict[str, str]] = ()  # {"role": ..., "content": ...}
    text: str = ""
    ids: Sequence[int] = ()
    max_tokens: Optional[int] = None  # None: the rest of the context; 0: score the prompt
    min_tokens: int = 0
    temperature: float = 0.0  # 0 = greedy
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Dict[int, float] = field(default_factory=dict)
    seed: Optional[int] = None
    top_logprobs: int = -1  # -1 none, 0 of the chosen tokens, k also of the k best
    prompt_logprobs: int = -1
    stop: Sequence[str] = ()
    stop_ids: Sequence[int] = ()
    ignore_eos: bool = False
    priority: int = 0
    deadline_ms: int = 0
    tenant: str = ""
    idempotency_key: str = ""
    n: int = 1  # choices: answers from one prompt; choice c is the same whatever n is
    id: str = ""  # of one among many: unique within a job; without one it gets its number
    group: str = ""  # your name for requests that belong together


@dataclass
class Part:
    """A stretch of one choice of an answer. `text` never splits a character."""

    ids: List[int]
    logprobs: List[float]
    top: List[List[TopToken]]
    text: str
    choice: int = 0


class WeightsSpan(NamedTuple):
    """Tokens from `from_token` on come from this version, up to the choice's next span."""

    version: int
    from_token: int
    choice: int = 0


@dataclass
class Usage:
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    kv_bytes: int = 0  # handed from prefill to decode
    queue_us: int = 0
    prefill_us: int = 0
    transfer_us: int = 0
    prefill_rank: int = 0
    decode_rank: int = 0
    attempts: int = 0  # retries after lost workers
    weights_version: int = 0  # of the last token
    exact: bool = True
    weights: List[WeightsSpan] = field(default_factory=list)  # by choice, then token
    prompt_weights: int = 0  # what the prompt's log-probabilities come from; 0: none asked
    ttft_us: int = 0  # arrival at the gateway to first token sent
    total_us: int = 0


@dataclass
class Choice:
    ids: List[int]  # the whole completion, the ending token included
    logprobs: List[float]
    top: List[List[TopToken]]
    text: str
    finish: str  # stop, length, cancelled, error


@dataclass
class Result:
    """`choices` has all of them; `ids`, `text` and so on are those of the first."""

    prompt_ids: List[int]
    prompt_logprobs: List[Optional[float]]  # the first is None; empty if not asked for
    prompt_top: List[List[TopToken]]
    choices: List[Choice]
    usage: Usage

    @property
    def ids(self) -> List[int]:
        return self.choices[0].ids

    @property
    def logprobs(self) -> List[float]:
        return self.choices[0].logprobs

    @property
    def top(self) -> List[List[TopToken]]:
        return self.choices[0].top

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def finish(self) -> str:
        return self.choices[0].finish


@dataclass
class Finished:
    """How one of many requests ended: with a result or with an error."""

    id: str
    index: int  # its place in the job
    request: Request
    result: Optional[Result] = None
    error: Optional[BatonError] = None


@dataclass
class Model:
    name: str
    version: str
    vocabulary: int
    context: int
    eos_ids: List[int]


@dataclass
class Worker:
    rank: int
    role: str
    host: str
    cores: str
    alive: bool
    slots: int
    slots_free: int
    blocks: int
    blocks_free: int
    blocks_quarantined: int
    queued: int
    running: int
    steps: int
    beat_age_us: int
    counters: Dict[str, int] = field(default_factory=dict)  # since its life began
    blocks_cached: int = 0
    weights: List[int] = field(default_factory=list)  # versions that requests may run on there
    weights_trouble: str = ""  # why it has not the current one
    tensor_parallel: int = 1  # of its instance, whose first rank is `rank`
    pipeline_parallel: int = 1
    block_tokens: int = 16
    kv_dtype: str = ""


@dataclass
class UpdateProgress:
    """How far an update of the weights is, or how it ended."""

    phase: str  # preparing, committing, retiring, idle (over), failed
    version: int
    digest: int  # of the weights' bytes
    workers: int
    workers_done: int
    old_requests: int  # still running on the old weights
    prepare_us: int


@dataclass
class Status:
    model: str
    version: str
    ready: bool
    uptime_us: int
    clients: int
    streams: int
    workers: List[Worker]
    requests: Dict[str, int]
    leases: Dict[str, int]
    counters: Dict[str, int]
    weights_version: int = 0  # that new requests run on
    update: Optional[UpdateProgress] = None  # the one that runs, or ran last
    update_error: str = ""  # why it failed
    kv_layer_groups: int = 1  # KV is handed over in so many
    kv_digests: bool = True  # and digested before and after its way
