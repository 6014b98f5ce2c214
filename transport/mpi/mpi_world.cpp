#include "transport/mpi/mpi_world.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "runtime/base/check.h"
#include "transport/mpi/mpi_access.h"
#include "transport/mpi/process_name.h"

namespace baton {
namespace {

constexpr int kExitTemporary = 75;  // EX_TEMPFAIL

// Ends the process unless it is destroyed in time.
class Watchdog {
 public:
  Watchdog(Micros within, int status, const char* sentence)
      : thread_([this, within, status, sentence] {
          std::unique_lock lock(mutex_);
          const auto limit = std::chrono::microseconds(within);
          if (done_.wait_for(lock, limit, [this] { return finished_; })) return;
          if (sentence) std::fputs(sentence, stderr);
          std::fflush(nullptr);
          _exit(status);
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      finished_ = true;
    }
    done_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool finished_ = false;
  std::thread thread_;
};

uint32_t rank_in(MPI_Comm communicator) {
  int rank = 0;
  MPI_Comm_rank(communicator, &rank);
  return static_cast<uint32_t>(rank);
}

uint32_t size_of(MPI_Comm communicator) {
  int size = 0;
  MPI_Comm_size(communicator, &size);
  return static_cast<uint32_t>(size);
}

}  // namespace

struct MpiWorld::Impl {
  MPI_Comm kv = MPI_COMM_NULL;
  uint32_t rank = 0;
  uint32_t size = 1;
  uint32_t local_rank = 0;
  uint32_t local_size = 1;
  std::string host;
  int tag_max = 0;
  std::vector<ProcessName> processes;  // by rank
};

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

MPI_Comm MpiAccess::kv_communicator(MpiWorld& world) {
  return world.impl_->kv;
}

int MpiAccess::tag_max(MpiWorld& world) {
  return world.impl_->tag_max;
}

MpiWorld::MpiWorld(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MpiWorld::~MpiWorld() = default;

bool MpiWorld::launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

Result<std::unique_ptr<MpiWorld>> MpiWorld::start(const Options& options) {
  const Watchdog watchdog(options.start_within_us, kExitTemporary,
                          "baton: not all ranks of the MPI job have started in time; look for a "
                          "rank that failed before it reached MPI\n");
  int level = MPI_THREAD_SINGLE;
  int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  if (code != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED) {
    return Error{ErrorCode::unavailable, "MPI does not start with thread level SERIALIZED (got " +
                                             std::to_string(level) +
                                             "): install an MPI built with threads"};
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  auto impl = std::make_unique<Impl>();
  impl->rank = rank_in(MPI_COMM_WORLD);
  impl->size = size_of(MPI_COMM_WORLD);
  code = MPI_Comm_dup(MPI_COMM_WORLD, &impl->kv);
  if (code != MPI_SUCCESS) return Error{ErrorCode::unavailable, mpi_error_text(code)};
  MPI_Comm_set_errhandler(impl->kv, MPI_ERRORS_RETURN);
  MPI_Comm node = MPI_COMM_NULL;
  code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  if (code != MPI_SUCCESS) return Error{ErrorCode::unavailable, mpi_error_text(code)};
  impl->local_rank = rank_in(node);
  impl->local_size = size_of(node);
  MPI_Comm_free(&node);
  char name[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  MPI_Get_processor_name(name, &length);
  impl->host.assign(name, static_cast<size_t>(length));
  void* tag_max = nullptr;
  int found = 0;
  MPI_Comm_get_attr(impl->kv, MPI_TAG_UB, &tag_max, &found);
  impl->tag_max = found != 0 ? *static_cast<int*>(tag_max) : 32'767;  // the least MPI allows
  std::unique_ptr<MpiWorld> world(new MpiWorld(std::move(impl)));
  for (const std::string& text : world->all_gather(process_name_text(own_process_name()))) {
    Result<ProcessName> name = parse_process_name(text);
    if (!name.ok()) return name.error();
    world->impl_->processes.push_back(*name);
  }
  return world;
}

uint32_t MpiWorld::rank() const {
  return impl_->rank;
}
uint32_t MpiWorld::size() const {
  return impl_->size;
}
uint32_t MpiWorld::local_rank() const {
  return impl_->local_rank;
}
uint32_t MpiWorld::local_size() const {
  return impl_->local_size;
}
const std::string& MpiWorld::host() const {
  return impl_->host;
}

bool MpiWorld::process_is_over(uint32_t rank) const {
  CHECK(rank < impl_->processes.size());
  return baton::process_is_over(impl_->processes[rank]);
}

std::vector<std::string> MpiWorld::all_gather(const std::string& blob) {
  const int own = static_cast<int>(blob.size());
  std::vector<int> sizes(impl_->size);
  CHECK(MPI_Allgather(&own, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD) == MPI_SUCCESS);
  std::vector<int> offsets(impl_->size);
  int total = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    offsets[i] = total;
    total += sizes[i];
  }
  std::string all(static_cast<size_t>(total), '\0');
  CHECK(MPI_Allgatherv(blob.data(), own, MPI_BYTE, all.data(), sizes.data(), offsets.data(),
                       MPI_BYTE, MPI_COMM_WORLD) == MPI_SUCCESS);
  std::vector<std::string> blobs;
  for (size_t i = 0; i < sizes.size(); ++i) {
    blobs.push_back(all.substr(static_cast<size_t>(offsets[i]), static_cast<size_t>(sizes[i])));
  }
  return blobs;
}

void MpiWorld::leave(int status, Micros finalize_within_us) {
  std::fflush(nullptr);
  if (finalize_within_us > 0) {
    const Watchdog watchdog(finalize_within_us, status, nullptr);
    MPI_Finalize();
  }
  _exit(status);
}

}  // namespace baton
