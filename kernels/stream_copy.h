#pragma once

#include <cstddef>

namespace baton {

// Copies bytes that nobody reads soon: whole lines of the target go past the caches, so that they
// are not read to be overwritten and nothing else leaves the caches for them. Ends of stretches
// that fill no line are copied as usual. The ranges do not overlap.
void stream_copy(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;
// Orders what stream_copy wrote before whatever this thread writes next; another thread may be told
// of the bytes only after it.
void stream_fence() noexcept;

// Copies bytes that come from far into a place that stays near, asking for them ahead: also for
// those behind them, of which `readable` are there, the copied ones among them.
void gather_copy(std::byte* target, const std::byte* source, std::size_t bytes,
                 std::size_t readable) noexcept;
// Asks for bytes that are read soon.
void fetch_ahead(const std::byte* source, std::size_t bytes) noexcept;

}  // namespace baton
