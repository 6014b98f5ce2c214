#include "tests/mpi/meeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "runtime/base/check.h"

namespace baton::test {
namespace {

constexpr uint32_t kBarriers = 128;
constexpr uint32_t kCells = 128;

}  // namespace

Meeting::Meeting(MpiWorld& world) {
  const std::string name = "/baton-meeting-" + std::to_string(getpid());
  const size_t bytes = (kBarriers + kCells) * sizeof(std::atomic<uint64_t>);
  int fd = -1;
  if (world.rank() == 0) {
    fd = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  }
  const std::string shared_name = world.all_gather(name)[0];
  if (world.rank() != 0) fd = shm_open(shared_name.c_str(), O_RDWR, 0600);
  CHECK(fd >= 0);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(memory != MAP_FAILED);
  close(fd);
  world.all_gather("");  // all have opened it
  if (world.rank() == 0) shm_unlink(name.c_str());
  cells_ = static_cast<std::atomic<uint64_t>*>(memory);
}

void Meeting::barrier(uint32_t point, uint32_t ranks) {
  CHECK(point < kBarriers);
  ++cells_[point];
  while (cells_[point] < ranks) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

std::atomic<uint64_t>& Meeting::cell(uint32_t index) {
  CHECK(index < kCells);
  return cells_[kBarriers + index];
}

}  // namespace baton::test
