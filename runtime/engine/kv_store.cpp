#include "runtime/engine/kv_store.h"

#include <cstring>
#include <utility>

namespace baton {

Result<KvStore> KvStore::allocate(const KvGeometry& geometry, uint32_t blocks) {
  Result<MappedMemory> memory = MappedMemory::allocate(geometry.block_bytes() * blocks,
                                                       {"the KV cache", "lower --kv-cache-memory"});
  if (!memory) return memory.error();
  KvStore store = over(geometry, blocks, memory->data());
  store.memory_ = std::move(*memory);
  return store;
}

KvStore KvStore::over(const KvGeometry& geometry, uint32_t blocks, std::byte* memory) {
  KvStore store;
  store.geometry_ = geometry;
  store.layout_ = kv_layout_of(geometry);
  store.block_bytes_ = geometry.block_bytes();
  store.blocks_ = blocks;
  store.pool_ = memory;
  return store;
}

void KvStore::fault_in(Compute& compute) {
  compute.run([this](Team& team) {
    team.run([this](int thread, int n) {
      const Share mine = share(block_bytes_ * blocks_, thread, n);
      std::memset(pool_ + mine.begin, 0, mine.end - mine.begin);
    });
  });
}

}  // namespace baton
