#include "runtime/engine/weights_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/base/hash.h"
#include "runtime/model/finite.h"

namespace baton {
namespace {

constexpr std::size_t kReadBytes = std::size_t{4} << 20;

}  // namespace

WeightsReader::WeightsReader(const ModelFile& file, int descriptor, MappedMemory buffer)
    : file_(&file), descriptor_(descriptor), buffer_(std::move(buffer)) {}

WeightsReader::WeightsReader(WeightsReader&& other) noexcept
    : file_(other.file_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      buffer_(std::move(other.buffer_)),
      digest_(other.digest_) {}

WeightsReader::~WeightsReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<WeightsReader> WeightsReader::open(const ModelFile& file) {
  std::size_t largest = 1;
  for (const TensorInfo& tensor : file.tensors()) largest = std::max(largest, tensor.data.size());
  Result<MappedMemory> buffer = MappedMemory::allocate(
      largest, {"the largest tensor of '" + file.path() + "'", "free some memory first"});
  if (!buffer) return buffer.error();
  const int descriptor = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return Error{ErrorCode::not_found,
                 fmt::format("{}: cannot be opened: {}", file.path(), std::strerror(errno))};
  }
  WeightsReader reader(file, descriptor, std::move(*buffer));
  if (Result<void> same = reader.check_header(); !same) return same.error();
  return reader;
}

// The path may lead to another file by now than the one that was opened and checked.
Result<void> WeightsReader::check_header() const {
  const TensorInfo& first = file_->tensors().front();
  const std::byte* header = first.data.data() - first.offset;
  std::vector<std::byte> piece(std::min<std::size_t>(kReadBytes, file_->data_offset()));
  for (std::uint64_t at = 0; at < file_->data_offset(); at += piece.size()) {
    piece.resize(std::min<std::uint64_t>(piece.size(), file_->data_offset() - at));
    if (Result<void> filled = fill(at, piece); !filled) return filled;
    if (std::memcmp(piece.data(), header + at, piece.size()) != 0) {
      return Error{ErrorCode::corrupt,
                   fmt::format("{}: was replaced while it was read; publish a file under its final "
                               "name only when it is complete",
                               file_->path())};
    }
  }
  return {};
}

Result<void> WeightsReader::fill(std::uint64_t offset, std::span<std::byte> target) const {
  std::size_t done = 0;
  while (done < target.size()) {
    const std::size_t wanted = std::min(kReadBytes, target.size() - done);
    const ssize_t got =
        ::pread(descriptor_, target.data() + done, wanted, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Error{ErrorCode::not_found,
                   fmt::format("{}: cannot be read at byte {}: {}", file_->path(), offset + done,
                               std::strerror(errno))};
    }
    if (got == 0) {
      return Error{ErrorCode::corrupt,
                   fmt::format("{}: ends at byte {} but had {} bytes when it was opened: it was "
                               "cut while it was read",
                               file_->path(), offset + done, file_->size_bytes())};
    }
    done += static_cast<std::size_t>(got);
  }
  return {};
}

Result<std::span<const std::byte>> WeightsReader::read(const TensorInfo& tensor) {
  const std::span<std::byte> bytes(buffer_.data(), tensor.data.size());
  if (Result<void> filled = fill(tensor.offset, bytes); !filled) return filled.error();
  if (const auto at = first_not_finite(tensor.type, bytes)) {
    return Error{ErrorCode::bad_model,
                 fmt::format("{}: tensor '{}' has a value that is not a number near element {}; "
                             "expected finite numbers",
                             file_->path(), tensor.name, *at)};
  }
  digest_ = mix64(digest_ ^ hash64(tensor.name.data(), tensor.name.size()));
  digest_ = mix64(digest_ ^ static_cast<std::uint64_t>(tensor.type));
  digest_ = mix64(digest_ ^ hash64(tensor.dims.data(), sizeof tensor.dims));
  digest_ = mix64(digest_ ^ hash64(bytes.data(), bytes.size()));
  return std::span<const std::byte>(bytes);
}

}  // namespace baton
