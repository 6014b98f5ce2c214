#pragma once

#include <mpi.h>

#include <climits>
#include <vector>

#include "runtime/base/check.h"
#include "transport/kv/piece_memory.h"

namespace baton {

// The memory of a piece and of the digest behind it as one datatype over absolute addresses, which
// MPI copies straight from or into. MPI keeps what it needs of it as long as a message does.
class PieceBuffer {
 public:
  PieceBuffer(const Stretches& stretches, uint64_t& trailer) {
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    const auto add = [&](void* data, size_t bytes) {
      CHECK(bytes <= INT_MAX);
      MPI_Aint at = 0;
      MPI_Get_address(data, &at);
      if (!places.empty() && places.back() + lengths.back() == at &&
          bytes <= static_cast<size_t>(INT_MAX - lengths.back())) {
        lengths.back() += static_cast<int>(bytes);  // one run: MPI copies it without packing
        return;
      }
      places.push_back(at);
      lengths.push_back(static_cast<int>(bytes));
    };
    for (const std::span<std::byte> part : stretches) add(part.data(), part.size());
    add(&trailer, sizeof trailer);
    MPI_Type_create_hindexed(static_cast<int>(places.size()), lengths.data(), places.data(),
                             MPI_BYTE, &type_);
    MPI_Type_commit(&type_);
  }
  ~PieceBuffer() { MPI_Type_free(&type_); }
  PieceBuffer(const PieceBuffer&) = delete;
  PieceBuffer& operator=(const PieceBuffer&) = delete;

  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

}  // namespace baton
