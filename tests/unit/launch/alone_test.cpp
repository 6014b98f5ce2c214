// A whole server in this process, used through the C++ client: what the sanitizers see of the real
// threads, sockets and engines.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "launch/client/baton_client.h"
#include "launch/serve/engines.h"
#include "launch/serve/host.h"
#include "launch/serve/rank.h"
#include "transport/inproc/inproc_mover.h"
// doctest last: it has a CHECK of its own.
#include <doctest/doctest.h>

using namespace baton;

namespace {

// The default tiny model of tests/oracle, made once.
std::string tiny_model() {
  const std::string folder = std::string(BATON_BINARY_DIR) + "/test-files";
  const std::string path = folder + "/tiny.gguf";
  std::filesystem::create_directories(folder);
  if (std::filesystem::exists(path)) return path;
  const std::string make = "/usr/bin/python3 '" + std::string(BATON_SOURCE_DIR) +
                           "/tests/oracle/data/make_tiny.py' '" + path + ".new' >/dev/null";
  REQUIRE(std::system(make.c_str()) == 0);
  std::filesystem::rename(path + ".new", path);
  return path;
}

// `baton serve` alone, without its command line.
class Server {
 public:
  Server() {
    options_.model_path = tiny_model();
    options_.client_endpoint = "tcp://127.0.0.1:*";
    options_.kv_cache_bytes = uint64_t{4} << 20;
    auto model = open_model(options_);
    REQUIRE(model.ok());
    const auto text = load_text(*model);
    REQUIRE(text.ok());
    RankPlace place;
    place.incarnation = process_incarnation();
    rank_ = std::make_unique<Rank>(place, options_);
    REQUIRE(rank_->add_control(*model, *text, nullptr).ok());
    CorePlan plan;
    plan.threads = 2;
    auto engines = start_engines(*model, options_, plan, 2, 1, rank_->post(), {});
    REQUIRE(engines.ok());
    rank_->add_workers(std::move(*engines), [this](Engine& engine, auto deliver) {
      return std::make_unique<InprocMover>(exchange_, store_of(engine), std::move(deliver),
                                           options_.limits);
    });
    rank_->add_host([this](const ClusterReply&) { ready_ = true; });
    loop_ = std::thread([this] { status_ = rank_->run(); });
  }
  ~Server() {
    Mail stop;
    stop.envelope.kind = StopAsked::kind;
    stop.envelope.to = ActorId{0, kHostSlot, kAnyIncarnation};
    stop.body = encode_body(StopAsked{15});
    rank_->post()(std::move(stop));
    loop_.join();
    CHECK(status_ == 0);
    CHECK(ready_);
  }

  client::Client connect() const {
    client::Options options;
    options.endpoint = rank_->client_endpoint();
    options.connect_timeout_ms = 60'000;
    auto connected = client::Client::connect(options);
    REQUIRE_MESSAGE(connected.value.has_value(), connected.error.text);
    return *connected.value;
  }

 private:
  ServeOptions options_;
  InprocExchange exchange_;
  std::unique_ptr<Rank> rank_;
  std::thread loop_;
  std::atomic<bool> ready_{false};
  std::atomic<int> status_{-1};
};

client::Request request_of(int number) {
  client::Request request;
  for (int i = 0; i < 5 + 9 * (number % 7); ++i)
    request.ids.push_back(3 + (number * 31 + i * 7) % 509);
  request.max_tokens = 12;
  request.ignore_eos = true;
  request.temperature = number % 2 ? 0.9f : 0.0f;
  request.seed = static_cast<uint64_t>(number);
  request.top_logprobs = 1;
  return request;
}

bool idle(client::Client& client) {
  for (int tries = 0; tries < 500; ++tries) {
    const auto status = client.status(60'000);
    REQUIRE(status.value.has_value());
    bool busy = false;
    for (const client::Count& count : status.value->requests) busy |= count.value > 0;
    for (const client::Worker& w : status.value->workers) {
      busy |= w.blocks_free != w.blocks || w.slots_free != w.slots;
    }
    if (!busy) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace

TEST_CASE("one process serves many requests at once, the same as one by one") {
  Server server;
  client::Client client = server.connect();
  CHECK(client.model().vocabulary == 512);
  CHECK(client.model().context == 512);
  std::vector<client::Stream> streams;
  for (int i = 0; i < 24; ++i) streams.push_back(client.submit(request_of(i)));
  for (int i = 0; i < 24; ++i) {
    std::vector<int32_t> streamed;
    std::string text;
    while (const auto part = streams[static_cast<size_t>(i)].next()) {
      streamed.insert(streamed.end(), part->ids.begin(), part->ids.end());
      text += part->text;
    }
    client::Stream& stream = streams[static_cast<size_t>(i)];
    REQUIRE_FALSE(stream.failed());
    CHECK(stream.result().ids == streamed);
    CHECK(stream.result().text == text);
    CHECK(streamed.size() == 12);
    client::Stream alone = client.submit(request_of(i));
    CHECK(alone.result().ids == streamed);
    CHECK(alone.result().logprobs == stream.result().logprobs);
  }
  CHECK(idle(client));
}

TEST_CASE("cancelled jobs and clients that leave give everything back") {
  Server server;
  client::Client watcher = server.connect();
  {
    client::Client leaver = server.connect();
    std::vector<client::Stream> streams;
    for (int i = 0; i < 12; ++i) {
      client::Request request = request_of(i);
      request.max_tokens = 400;
      streams.push_back(leaver.submit(request));
    }
    for (size_t i = 0; i < streams.size(); i += 2) streams[i].cancel();
    for (size_t i = 0; i < streams.size(); i += 2) {
      while (streams[i].next()) {
      }
      CHECK((streams[i].failed() ? streams[i].error().code == "cancelled"
                                 : streams[i].result().ids.size() == 400));
    }
  }
  CHECK(idle(watcher));
  client::Stream after = watcher.submit(request_of(1));
  CHECK(after.result().ids.size() == 12);
}

TEST_CASE("a request that cannot be is refused with a code and a sentence") {
  Server server;
  client::Client client = server.connect();
  client::Request request = request_of(1);
  request.ids.assign(600, 5);
  client::Stream stream = client.submit(request);
  CHECK(stream.error().code == "context_too_long");
  CHECK(stream.error().text.find("600") != std::string::npos);
  CHECK(stream.failed());
}

TEST_CASE("T60, T62: several choices and jobs of many requests, the same as one by one") {
  Server server;
  client::Client client = server.connect();
  std::vector<client::Request> requests;
  std::vector<client::Result> alone;
  for (int i = 0; i < 16; ++i) {
    client::Request request = request_of(2 * i + 1);  // those that are not greedy
    request.n = 1 + static_cast<uint32_t>(i) % 4;
    request.id = "r" + std::to_string(i);
    client::Stream stream = client.submit(request);
    std::vector<std::vector<int32_t>> streamed(request.n);
    while (const auto part = stream.next()) {
      auto& ids = streamed.at(part->choice);
      ids.insert(ids.end(), part->ids.begin(), part->ids.end());
    }
    const client::Result result = stream.result();
    REQUIRE(result.choices() == request.n);
    for (size_t c = 0; c < request.n; ++c) CHECK(result.choice(c).ids == streamed[c]);
    request.n = 1;
    CHECK(client.submit(request).result().ids == result.ids);
    request.n = static_cast<uint32_t>(result.choices());
    requests.push_back(request);
    alone.push_back(result);
  }
  for (const bool ordered : {true, false}) {
    auto group = client.submit_all(requests, {.outstanding = 5, .ordered = ordered});
    REQUIRE(group.value);
    std::vector<size_t> order;
    while (const auto finished = group.value->next()) {
      REQUIRE_FALSE(finished->failed);
      const client::Result& expected = alone[finished->index];
      CHECK(finished->id == requests[finished->index].id);
      for (size_t c = 0; c < expected.choices(); ++c) {
        CHECK(finished->result.choice(c).ids == expected.choice(c).ids);
        CHECK(finished->result.choice(c).logprobs == expected.choice(c).logprobs);
      }
      order.push_back(finished->index);
    }
    if (ordered) CHECK(std::is_sorted(order.begin(), order.end()));
    std::sort(order.begin(), order.end());
    CHECK(order.size() == 16);
    CHECK(std::unique(order.begin(), order.end()) == order.end());
  }
  requests[7].id = "r3";
  const auto refused = client.submit_all(requests);
  CHECK_FALSE(refused.value);
  CHECK(refused.error.code == "conflict");
  CHECK(refused.error.text.find("'r3'") != std::string::npos);
  CHECK(idle(client));
}
