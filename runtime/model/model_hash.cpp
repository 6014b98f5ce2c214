#include "runtime/model/model_hash.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr std::size_t kPieces = 16;
constexpr std::size_t kPieceBytes = 64;
constexpr std::size_t kReadBytes = 1u << 20;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Error io_error(const std::string& path, const char* what) {
  return Error{ErrorCode::not_found, fmt::format("{}: {}: {}", path, what, std::strerror(errno))};
}

}  // namespace

std::string fingerprint_of(std::span<const std::byte> file, std::uint64_t data_offset,
                           const std::vector<TensorInfo>& tensors) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  CHECK(state != nullptr);
  XXH3_128bits_reset(state.get());
  const std::uint64_t size = file.size();
  XXH3_128bits_update(state.get(), &size, sizeof size);
  XXH3_128bits_update(state.get(), file.data(), data_offset);
  for (const TensorInfo& tensor : tensors) {
    const std::size_t bytes = tensor.data.size();
    if (bytes <= kPieces * kPieceBytes) {
      XXH3_128bits_update(state.get(), tensor.data.data(), bytes);
      continue;
    }
    for (std::size_t i = 0; i < kPieces;
         ++i) {  // the first piece at the start, the last at the end
      const std::size_t at = (bytes - kPieceBytes) / (kPieces - 1) * i;
      const std::size_t start = i + 1 == kPieces ? bytes - kPieceBytes : at;
      XXH3_128bits_update(state.get(), tensor.data.data() + start, kPieceBytes);
    }
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

Result<std::string> sha256_of_file(
    const std::string& path, const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    return io_error(path, "cannot be opened");
  }
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  CHECK(context != nullptr);
  CHECK(EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  std::vector<unsigned char> buffer(kReadBytes);
  std::uint64_t done = 0;
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(path, "cannot be read");
    if (got == 0) break;
    CHECK(EVP_DigestUpdate(context.get(), buffer.data(), static_cast<std::size_t>(got)) == 1);
    done += static_cast<std::uint64_t>(got);
    if (progress) progress(done, static_cast<std::uint64_t>(status.st_size));
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  CHECK(EVP_DigestFinal_ex(context.get(), digest, &size) == 1);
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

}  // namespace baton
