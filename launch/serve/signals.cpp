#include "launch/serve/signals.h"

#include <pthread.h>

#include <thread>
#include <utility>

#include "launch/serve/host.h"
#include "runtime/actor/wire.h"

namespace baton {

SignalWatch::SignalWatch() {
  sigemptyset(&set_);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&set_, number);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void SignalWatch::start(uint32_t rank, std::function<void(Mail)> post) {
  std::thread([set = set_, rank, post = std::move(post)] {
    int number = 0;
    while (sigwait(&set, &number) == 0) {
      Mail mail;
      mail.envelope.kind = StopAsked::kind;
      mail.envelope.to = ActorId{rank, kHostSlot, kAnyIncarnation};
      mail.body = encode_body(StopAsked{number});
      post(std::move(mail));
    }
  }).detach();
}

}  // namespace baton
