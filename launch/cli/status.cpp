#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "launch/cli/client_options.h"
#include "launch/cli/terminal.h"
#include "runtime/base/json.h"

namespace baton::cli {
namespace {

std::string of_total(uint32_t used, uint32_t total) {
  return std::to_string(used) + " of " + std::to_string(total);
}

// Of its instance: "3" or "3-6".
std::string ranks_text(const client::Worker& w) {
  const uint32_t ranks = w.tensor_parallel * w.pipeline_parallel;
  std::string text = std::to_string(w.rank);
  if (ranks > 1) text += "-" + std::to_string(w.rank + ranks - 1);
  return text;
}

void print_counts(const char* title, const std::vector<client::Count>& counts) {
  std::printf("%s", title);
  bool any = false;
  for (const client::Count& c : counts) {
    if (c.value == 0) continue;
    std::printf("%s %s %s", any ? "," : "", c.name.c_str(), count_text(c.value).c_str());
    any = true;
  }
  std::printf("%s\n", any ? "" : " none");
}

Json counts_json(const std::vector<client::Count>& counts) {
  Json object = Json::object();
  for (const client::Count& c : counts) object.set(c.name, static_cast<int64_t>(c.value));
  return object;
}

std::string weights_text(const client::Worker& w) {
  std::string text;
  for (const uint64_t version : w.weights) {
    text += (text.empty() ? "" : ",") + std::to_string(version);
  }
  return text.empty() ? "-" : text;
}

void print_weights(const client::Status& s) {
  std::printf("weights:  version %llu", static_cast<unsigned long long>(s.weights_version));
  if (s.update.phase == "failed") {
    std::printf("; the update to %llu failed: %s",
                static_cast<unsigned long long>(s.update.version), s.update_error.c_str());
  } else if (s.update.phase != "idle") {
    std::printf("; update to %llu: %s, %u of %u workers, %s requests on the old weights",
                static_cast<unsigned long long>(s.update.version), s.update.phase.c_str(),
                s.update.workers_done, s.update.workers, count_text(s.update.old_requests).c_str());
  }
  std::printf("\n");
  for (const client::Worker& w : s.workers) {
    if (w.weights_trouble.empty()) continue;
    std::printf("          rank %u gets no work: %s\n", w.rank, w.weights_trouble.c_str());
  }
}

Json worker_json(const client::Worker& w) {
  Json object = Json::object();
  object.set("rank", static_cast<int64_t>(w.rank));
  object.set("role", w.role);
  object.set("host", w.host);
  object.set("alive", w.alive);
  object.set("slots", static_cast<int64_t>(w.slots));
  object.set("slots_free", static_cast<int64_t>(w.slots_free));
  object.set("blocks", static_cast<int64_t>(w.blocks));
  object.set("blocks_free", static_cast<int64_t>(w.blocks_free));
  object.set("blocks_quarantined", static_cast<int64_t>(w.blocks_quarantined));
  object.set("blocks_cached", static_cast<int64_t>(w.blocks_cached));
  object.set("queued", static_cast<int64_t>(w.queued));
  object.set("running", static_cast<int64_t>(w.running));
  object.set("steps", static_cast<int64_t>(w.steps));
  object.set("beat_age_us", w.beat_age_us);
  object.set("counters", counts_json(w.counters));
  Json versions = Json::array();
  for (const uint64_t version : w.weights) versions.push_back(static_cast<int64_t>(version));
  object.set("weights", std::move(versions));
  if (!w.weights_trouble.empty()) object.set("weights_trouble", w.weights_trouble);
  object.set("tensor_parallel", static_cast<int64_t>(w.tensor_parallel));
  object.set("pipeline_parallel", static_cast<int64_t>(w.pipeline_parallel));
  object.set("block_tokens", static_cast<int64_t>(w.block_tokens));
  object.set("kv_dtype", w.kv_dtype);
  object.set("cores", w.cores);
  return object;
}

void print_json(const client::Status& s) {
  Json object = Json::object();
  object.set("model", s.model);
  object.set("version", s.version);
  object.set("ready", s.ready);
  object.set("uptime_us", s.uptime_us);
  object.set("clients", static_cast<int64_t>(s.clients));
  object.set("streams", static_cast<int64_t>(s.streams));
  Json workers = Json::array();
  for (const client::Worker& w : s.workers) workers.push_back(worker_json(w));
  object.set("workers", std::move(workers));
  object.set("requests", counts_json(s.requests));
  object.set("leases", counts_json(s.leases));
  object.set("counters", counts_json(s.counters));
  object.set("weights_version", static_cast<int64_t>(s.weights_version));
  Json update = Json::object();
  update.set("phase", s.update.phase);
  update.set("version", static_cast<int64_t>(s.update.version));
  update.set("workers_done", static_cast<int64_t>(s.update.workers_done));
  update.set("old_requests", static_cast<int64_t>(s.update.old_requests));
  update.set("error", s.update_error);
  object.set("update", std::move(update));
  object.set("kv_layer_groups", static_cast<int64_t>(s.kv_layer_groups));
  object.set("kv_digests", s.kv_digests);
  std::printf("%s\n", write_json(object).c_str());
}

}  // namespace

int status_main(int argc, char** argv) {
  Command command("status", "Show a server's ranks, slots, blocks and queue");
  ClientOptions where;
  bool json = false;
  where.enroll(command);
  command.flag("--json", json, "One JSON object, for programs");
  if (const auto status = command.parse(argc, argv)) return *status;
  auto connected = client::Client::connect(where.of("baton-status"));
  if (!connected.value) return report_error("status", connected.error);
  const auto status = connected.value->status();
  if (!status.value) return report_error("status", status.error);
  const client::Status& s = *status.value;
  if (json) {
    print_json(s);
    return kOk;
  }
  std::printf("%s, Baton %s, up %s, %s; %u clients, %u streams\n\n", s.model.c_str(),
              s.version.c_str(), duration_text(s.uptime_us).c_str(),
              s.ready ? "ready" : "not ready", s.clients, s.streams);
  Table table({"ranks", "role", "tp x pp", "KV", "host", "cores", "state", "slots used",
               "blocks used", "cached", "quarantined", "queued", "running", "steps", "weights",
               "last beat"});
  for (const client::Worker& w : s.workers) {
    table.add({ranks_text(w), w.role,
               std::to_string(w.tensor_parallel) + " x " + std::to_string(w.pipeline_parallel),
               w.kv_dtype + " / " + std::to_string(w.block_tokens), w.host, w.cores,
               w.alive ? "up" : "dead", w.slots ? of_total(w.slots - w.slots_free, w.slots) : "-",
               of_total(w.blocks - w.blocks_free, w.blocks), std::to_string(w.blocks_cached),
               std::to_string(w.blocks_quarantined), std::to_string(w.queued),
               std::to_string(w.running), count_text(w.steps), weights_text(w),
               duration_text(w.beat_age_us) + " ago"});
  }
  std::printf("%s\n", table.text(may_colour(stdout)).c_str());
  print_weights(s);
  std::printf("hand-off: in %u %s of layers, %s\n", s.kv_layer_groups,
              s.kv_layer_groups == 1 ? "group" : "groups",
              s.kv_digests ? "digested" : "without digests");
  print_counts("requests:", s.requests);
  print_counts("leases:  ", s.leases);
  print_counts("counters:", s.counters);
  for (const client::Worker& w : s.workers) {
    print_counts(("rank " + std::to_string(w.rank) + ", " + w.role + ":").c_str(), w.counters);
  }
  return kOk;
}

}  // namespace baton::cli
