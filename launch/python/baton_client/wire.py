"""The frames of Baton's client protocol: [envelope, body], both msgpack arrays."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import msgpack

from .types import (
    BatonError, Choice, Model, Part, Request, Result, Status, TopToken, UpdateProgress, Usage,
    WeightsSpan, Worker,
)  # fmt: skip

VERSION = 1
NEVER = 2**63 - 1
ANYONE = [0, 0, 0]
GATEWAY = [0, 1, 0]

SUBMIT, ACCEPTED, REFUSED, FETCH, ACK, CANCEL = 20, 21, 22, 23, 24, 25
TOKENS, DONE, BEAT, STATUS_QUERY, STATUS_REPLY = 26, 27, 28, 30, 31
MODEL_REPLY, HELLO, BAD_FRAME = 33, 34, 35
UPDATE_WEIGHTS, UPDATE_REPORT = 36, 37

ERROR_NAMES = (
    "ok", "invalid_argument", "not_found", "bad_frame", "bad_model", "unsupported",
    "context_too_long", "busy", "unavailable", "deadline_exceeded", "cancelled", "worker_lost",
    "corrupt", "stale", "conflict", "internal",
)  # fmt: skip
FINISH_NAMES = ("none", "stop", "length", "cancelled", "error")
ROLE_NAMES = ("prefill", "decode")
POLICY_NAMES = ("finish", "continue", "abort")
PHASE_NAMES = ("idle", "preparing", "committing", "retiring", "failed")
KV_DTYPE_NAMES = ("f32", "bf16", "f16")

Frames = List[bytes]


def frames(kind: int, body: Sequence[Any], correlation: int = 0) -> Frames:
    envelope = [VERSION, kind, ANYONE, GATEWAY, 0, 0, 0, 0, correlation, NEVER, ""]
    return [msgpack.packb(envelope), msgpack.packb(list(body), use_single_float=True)]


def parse(parts: Sequence[bytes]) -> Tuple[int, int, List[Any]]:
    """(kind, correlation, body); raises ValueError on anything that is not a message."""
    if len(parts) != 2:
        raise ValueError(f"a message has 2 frames, got {len(parts)}")
    envelope, body = (msgpack.unpackb(part) for part in parts)
    if not isinstance(envelope, list) or len(envelope) < 11 or not isinstance(body, list):
        raise ValueError("not an envelope and a body")
    if envelope[0] != VERSION:
        raise ValueError(f"protocol version {envelope[0]}, this client speaks {VERSION}")
    return envelope[1], envelope[8], body


def submit_body(job: int, r: Request, stream: bool = True) -> List[Any]:
    bias = [[int(token), float(value)] for token, value in r.logit_bias.items()]
    sampling = [
        float(r.temperature), r.top_k, float(r.top_p), float(r.min_p),
        float(r.repetition_penalty), float(r.presence_penalty), float(r.frequency_penalty),
        bias, r.seed if r.seed is not None else 0, r.top_logprobs, r.prompt_logprobs,
    ]  # fmt: skip
    messages = [[m["role"], m["content"]] for m in r.messages]
    return [
        job, r.idempotency_key, list(r.ids), r.text, messages, r.n,
        r.max_tokens if r.max_tokens is not None else 0, r.max_tokens is not None,
        r.min_tokens, sampling, r.seed is not None, list(r.stop), list(r.stop_ids),
        r.ignore_eos, r.priority, r.deadline_ms, r.tenant, stream, r.group,
    ]  # fmt: skip


def error_of(refusal: Sequence[Any]) -> BatonError:
    code = ERROR_NAMES[refusal[0]] if refusal[0] < len(ERROR_NAMES) else "internal"
    return BatonError(code, refusal[1], refusal[2])


def tops(entries: Sequence[Any]) -> List[List[TopToken]]:
    return [[TopToken(t[0], t[1]) for t in entry] for entry in entries]


def part_of(body: Sequence[Any], known: int) -> Part:
    """A ClientTokens body without its first `known` tokens."""
    return Part(body[3][known:], body[4][known:], tops(body[5])[known:], body[6], body[1])


def result_of(body: Sequence[Any]) -> Result:
    choices = [Choice(c[0], c[1], tops(c[2]), c[3], FINISH_NAMES[c[4]]) for c in body[1]]
    usage = Usage(*body[5][:12], ttft_us=body[6], total_us=body[7])
    usage.weights = [WeightsSpan(*span[:3]) for span in body[5][12]]
    usage.prompt_weights = body[5][13]
    scores = [None, *body[3]] if body[3] else []
    return Result(
        prompt_ids=body[2],
        prompt_logprobs=scores,
        prompt_top=tops(body[4]),
        choices=choices or [Choice([], [], [], "", "none")],
        usage=usage,
    )


def model_of(body: Sequence[Any]) -> Tuple[str, Model]:
    return body[0], Model(body[1], body[2], body[3], body[4], body[5])


def _counts(entries: Sequence[Any]) -> dict:
    return {name: value for name, value in (entry[:2] for entry in entries)}


def _worker(w: Sequence[Any]) -> Worker:
    slots, blocks = w[6][0], w[6][1]
    return Worker(
        rank=w[0], role=ROLE_NAMES[w[2]], host=w[3], cores=w[4], alive=w[5], slots=slots,
        slots_free=w[7], blocks=blocks, blocks_free=w[8], blocks_quarantined=w[9], queued=w[10],
        running=w[11], steps=w[12], beat_age_us=w[13], counters=_counts(w[15]),
        blocks_cached=w[16], weights=w[18], weights_trouble=w[19],
        tensor_parallel=w[20], pipeline_parallel=w[21], block_tokens=w[22], kv_dtype=KV_DTYPE_NAMES[w[23]],
    )  # fmt: skip


def update_body(token: str, path: str, version: int, policy: str, sha256: str, dry_run: bool,
                wait_retired: bool, prepare_timeout: float) -> List[Any]:  # fmt: skip
    if policy not in POLICY_NAMES:
        raise BatonError("invalid_argument", f"the policy is {policy!r}; expected one of {POLICY_NAMES}")
    timeout_ms = int(prepare_timeout * 1000)
    return [token, [path, sha256], version, POLICY_NAMES.index(policy), dry_run, wait_retired, timeout_ms]


def progress_of(report: Sequence[Any]) -> UpdateProgress:
    return UpdateProgress(PHASE_NAMES[report[2]], *report[3:9])


def status_of(body: Sequence[Any]) -> Status:
    workers, requests, leases, counters, weights_version, update, kv_layer_groups, kv_digests = body[0][:8]
    return Status(
        model=body[1],
        version=body[2],
        clients=body[3],
        streams=body[4],
        uptime_us=body[5],
        ready=body[6],
        workers=[_worker(w) for w in workers],
        requests=_counts(requests),
        leases=_counts(leases),
        counters=_counts(counters) | _counts(body[7]),
        weights_version=weights_version,
        update=progress_of(update),
        update_error=update[9][1],
        kv_layer_groups=kv_layer_groups,
        kv_digests=kv_digests,
    )
