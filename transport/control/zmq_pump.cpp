#include "transport/control/zmq_pump.h"

#include <zmq.h>

#include <utility>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <deque>

#include "runtime/base/check.h"

namespace baton {

struct ZmqPump::Impl : std::enable_shared_from_this<ZmqPump::Impl> {
  Impl(boost::asio::io_context& loop, void* owned, const Options& wanted, Receive sink)
      : io(loop), socket(owned), options(wanted), receive(std::move(sink)), readiness(loop) {
    int fd = -1;
    size_t size = sizeof fd;
    CHECK(zmq_getsockopt(socket, ZMQ_FD, &fd, &size) == 0);
    readiness.assign(fd);
  }

  void schedule() {
    if (scheduled) return;
    scheduled = true;
    boost::asio::post(io, [self = shared_from_this()] {
      self->scheduled = false;
      if (!self->closed) self->pump();
    });
  }

  // The last thing it learns before it sleeps is that the socket has nothing usable. A destroyed
  // pump may be noticed after each callback.
  void pump() {
    for (int budget = options.burst; budget > 0; --budget) {
      int events = 0;
      size_t size = sizeof events;
      if (zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) != 0) return;
      bool moved = false;
      if ((events & ZMQ_POLLIN) != 0) moved |= receive_one();
      if (closed) return;
      if ((events & ZMQ_POLLOUT) != 0 && !outbox.empty()) moved |= send_one();
      if (!moved) return nap();
    }
    schedule();
  }

  // Always waits for readability: that is how the descriptor reports room to send as well.
  void nap() {
    if (waiting) return;
    waiting = true;
    readiness.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [self = shared_from_this()](const boost::system::error_code&) {
                           self->waiting = false;
                           if (!self->closed) self->pump();
                         });
  }

  bool receive_one() {
    ZmqFrames frames;
    int source_fd = -1;
    bool more = true;
    while (more) {
      zmq_msg_t message;
      zmq_msg_init(&message);
      if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&message);
        return false;
      }
      frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
      source_fd = zmq_msg_get(&message, ZMQ_SRCFD);
      more = zmq_msg_more(&message) != 0;
      zmq_msg_close(&message);
    }
    const auto keep = shared_from_this();  // the callback may destroy the pump
    receive(std::move(frames), source_fd);
    return true;
  }

  bool send_one() {
    const ZmqFrames& frames = outbox.front();
    for (size_t i = 0; i < frames.size(); ++i) {
      const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
      if (zmq_send(socket, frames[i].data(), frames[i].size(), ZMQ_DONTWAIT | more) >= 0) continue;
      // A message is refused at its first frame, as a whole.
      if (errno == EAGAIN && !options.drop_when_full) return false;
      ++unroutable;
      break;
    }
    outbox.pop_front();
    return true;
  }

  void close() {
    closed = true;
    readiness.release();  // ZeroMQ owns the descriptor
    zmq_close(socket);
  }

  boost::asio::io_context& io;
  void* socket;
  const Options options;
  Receive receive;
  boost::asio::posix::stream_descriptor readiness;
  std::deque<ZmqFrames> outbox;
  uint64_t unroutable = 0;
  bool scheduled = false;
  bool waiting = false;
  bool closed = false;
};

ZmqPump::ZmqPump(boost::asio::io_context& io, void* socket, const Options& options, Receive receive)
    : impl_(std::make_shared<Impl>(io, socket, options, std::move(receive))) {
  impl_->schedule();
}

ZmqPump::~ZmqPump() {
  impl_->close();
}

bool ZmqPump::send(ZmqFrames frames) {
  if (impl_->outbox.size() >= impl_->options.outbox_max) return false;
  impl_->outbox.push_back(std::move(frames));
  impl_->schedule();
  return true;
}

size_t ZmqPump::queued() const {
  return impl_->outbox.size();
}
uint64_t ZmqPump::unroutable() const {
  return impl_->unroutable;
}

ZmqMonitor::ZmqMonitor(boost::asio::io_context& io, void* context, void* socket, Notify notify)
    : watched_(socket) {
  // Not the address of an object: ZeroMQ frees a name some time after its socket is closed.
  static std::atomic<uint64_t> number{0};
  const std::string name = "inproc://monitor-" + std::to_string(++number);
  CHECK(zmq_socket_monitor(socket, name.c_str(),
                           ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED) == 0);
  void* pair = zmq_socket(context, ZMQ_PAIR);
  CHECK(pair != nullptr);
  const int linger = 0;
  zmq_setsockopt(pair, ZMQ_LINGER, &linger, sizeof linger);
  // ZeroMQ's own thread blocks on a full monitor: let it never be full.
  const int unlimited = 0;
  zmq_setsockopt(pair, ZMQ_RCVHWM, &unlimited, sizeof unlimited);
  CHECK(zmq_connect(pair, name.c_str()) == 0);
  pump_ = std::make_unique<ZmqPump>(
      io, pair, ZmqPump::Options{}, [notify = std::move(notify)](ZmqFrames frames, int) {
        if (frames.empty() || frames[0].size() < 6) return;
        uint16_t event = 0;
        int32_t fd = 0;
        std::memcpy(&event, frames[0].data(), sizeof event);
        std::memcpy(&fd, frames[0].data() + 2, sizeof fd);
        notify(event == ZMQ_EVENT_DISCONNECTED ? Event::lost : Event::made, fd);
      });
}

ZmqMonitor::~ZmqMonitor() {
  // In this order: ZeroMQ's own thread blocks, holding a lock, on a monitor that nobody reads.
  zmq_socket_monitor(watched_, nullptr, 0);
  pump_.reset();
}

}  // namespace baton
