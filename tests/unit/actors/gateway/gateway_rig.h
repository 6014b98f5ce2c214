#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway/gateway.h"
#include "tests/unit/actors/fake_context.h"

namespace baton::test {

// A worker pool that works when the test says so, in the order that the test wants.
class FakeWorkers : public Workers {
 public:
  bool run(std::function<Mail()> work) override {
    if (queue.size() >= queue_max) return false;
    queue.push_back(std::move(work));
    return true;
  }
  Mail take(size_t index = 0) {
    const std::function<Mail()> work = queue.at(index);
    queue.erase(queue.begin() + static_cast<ptrdiff_t>(index));
    return work();
  }

  std::deque<std::function<Mail()>> queue;
  size_t queue_max = 64;
};

inline constexpr TokenId kEos = 256;    // of the byte tokenizer: its first control token
inline constexpr TokenId kStart = 257;  // and its second, <|im_start|>
inline constexpr TokenId kVocabulary = 258;
inline constexpr uint32_t kContextMax = 128;

inline std::shared_ptr<const ModelText> byte_text(std::optional<ChatTemplate> chat = {}) {
  return std::make_shared<ModelText>(
      ModelText{Tokenizer::of_bytes({"<|im_end|>", "<|im_start|>"}), std::move(chat), {kEos}});
}

inline ActorId client_at(uint32_t slot) {
  return {kClientRank, slot, 1};
}

// A gateway between a test that plays clients, scheduler and workers.
struct GatewayRig {
  static constexpr ActorId kGateway{0, kGatewaySlot, 3};
  static constexpr ActorId kScheduler{0, kSchedulerSlot, kAnyIncarnation};
  static constexpr ActorId kPrefill{1, kPrefillSlot, 1};
  static constexpr ActorId kDecode{2, kDecodeSlot, 1};
  static constexpr ActorId kDecode2{3, kDecodeSlot, 1};

  explicit GatewayRig(const Limits& limits = {}, std::optional<ChatTemplate> chat = {},
                      uint64_t seed = 1)
      : context(kGateway, seed) {
    GatewayOptions options;
    options.limits = limits;
    options.text = byte_text(std::move(chat));
    options.context_max = kContextMax;
    options.vocabulary = kVocabulary;
    options.model = "bytes";
    options.version = "0.1.0";
    options.workers = &workers;
    gateway = std::make_unique<Gateway>(options);
    gateway->start(context);
  }

  template <Message M>
  void from(ActorId who, const M& message, const Routing& routing = {}) {
    context.deliver(*gateway, who, message, routing);
  }
  // Says hello from a client's address; returns the session's token.
  std::string hello(ActorId client, const std::string& token = "") {
    from(client, ClientHello{token, "test"});
    return context.expect<ModelReply>(client).message.session;
  }
  void run_worker(size_t index = 0) { gateway->receive(context, workers.take(index)); }

  static Submit request(uint64_t job = 1) {
    Submit submit;
    submit.job = job;
    submit.ids = {'h', 'i'};
    submit.has_max_tokens = true;
    submit.max_tokens = 32;
    return submit;
  }
  // Submits, and answers Admit with Admitted{epoch 1}; returns the request's id.
  RequestId start(ActorId client, const Submit& submit) {
    from(client, submit, {.correlation = submit.job + 1000});
    if (submit.ids.empty()) run_worker();
    const RequestId id = context.expect<Admit>(kScheduler).envelope.request;
    from(kScheduler, Admitted{}, {.request = id, .epoch = Epoch{1}});
    context.expect<Accepted>(client);
    return id;
  }
  static TokenEntry entry(RequestId id, uint32_t seq, TokenId token, Finish finish = Finish::none,
                          uint32_t epoch = 1) {
    TokenEntry e;
    e.request = id;
    e.epoch = Epoch{epoch};
    e.seq = seq;
    e.id = token;
    e.logprob = -0.5f * static_cast<float>(seq);
    e.finish = finish;
    return e;
  }
  void token(RequestId id, uint32_t seq, TokenId token, Finish finish = Finish::none,
             uint32_t epoch = 1, ActorId sender = kDecode) {
    from(sender, Tokens{{entry(id, seq, token, finish, epoch)}});
  }
  // Tokens seq.. of a text, one message each.
  void text(RequestId id, uint32_t seq, const std::string& bytes, Finish finish = Finish::none,
            uint32_t epoch = 1, ActorId sender = kDecode) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      token(id, seq + static_cast<uint32_t>(i), static_cast<unsigned char>(bytes[i]),
            i + 1 == bytes.size() ? finish : Finish::none, epoch, sender);
    }
  }
  void done_ack(RequestId id, const Usage& usage = {}, uint32_t epoch = 1) {
    from(kScheduler, DoneAck{usage}, {.request = id, .epoch = Epoch{epoch}});
  }
  // All ClientTokens that went to a client, joined: the text, and the ids in order.
  struct Streamed {
    std::string text;
    std::vector<TokenId> ids;
    size_t messages = 0;
  };
  Streamed streamed(ActorId client, uint64_t job = 1, uint32_t from_seq = 0) {
    Streamed all;
    std::vector<Sent<ClientTokens>> other;
    while (auto part = context.take<ClientTokens>(client)) {
      if (part->message.job != job) {
        other.push_back(std::move(*part));
        continue;
      }
      REQUIRE(part->message.seq == from_seq + all.ids.size());
      all.text += part->message.text;
      all.ids.insert(all.ids.end(), part->message.ids.begin(), part->message.ids.end());
      ++all.messages;
    }
    for (const auto& part : other) context.send(client, part.message);
    return all;
  }

  FakeContext context;
  FakeWorkers workers;
  std::unique_ptr<Gateway> gateway;
};

}  // namespace baton::test
