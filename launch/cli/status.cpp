#include <cstdio>
#include <string>

#include "launch/cli/client_options.h"
#include "launch/cli/terminal.h"

namespace baton::cli {
namespace {

std::string of_total(uint32_t used, uint32_t total) {
  return std::to_string(used) + " of " + std::to_string(total);
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

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

std::string json_counts(const std::vector<client::Count>& counts) {
  std::string out = "{";
  for (const client::Count& c : counts) {
    out += (out.size() > 1 ? "," : "") + json_string(c.name) + ":" + std::to_string(c.value);
  }
  return out + "}";
}

void print_json(const client::Status& s) {
  std::printf(
      "{\"model\":%s,\"version\":%s,\"ready\":%s,\"uptime_us\":%lld,\"clients\":%u,"
      "\"streams\":%u,\"workers\":[",
      json_string(s.model).c_str(), json_string(s.version).c_str(), s.ready ? "true" : "false",
      static_cast<long long>(s.uptime_us), s.clients, s.streams);
  for (size_t i = 0; i < s.workers.size(); ++i) {
    const client::Worker& w = s.workers[i];
    std::printf(
        "%s{\"rank\":%u,\"role\":%s,\"host\":%s,\"alive\":%s,\"slots\":%u,"
        "\"slots_free\":%u,\"blocks\":%u,\"blocks_free\":%u,\"blocks_quarantined\":%u,"
        "\"queued\":%u,\"running\":%u,\"steps\":%llu,\"beat_age_us\":%lld}",
        i ? "," : "", w.rank, json_string(w.role).c_str(), json_string(w.host).c_str(),
        w.alive ? "true" : "false", w.slots, w.slots_free, w.blocks, w.blocks_free,
        w.blocks_quarantined, w.queued, w.running, static_cast<unsigned long long>(w.steps),
        static_cast<long long>(w.beat_age_us));
  }
  std::printf("],\"requests\":%s,\"leases\":%s,\"counters\":%s}\n", json_counts(s.requests).c_str(),
              json_counts(s.leases).c_str(), json_counts(s.counters).c_str());
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
  Table table({"rank", "role", "host", "state", "slots used", "blocks used", "quarantined",
               "queued", "running", "steps", "last beat"});
  for (const client::Worker& w : s.workers) {
    table.add({std::to_string(w.rank), w.role, w.host, w.alive ? "up" : "dead",
               w.slots ? of_total(w.slots - w.slots_free, w.slots) : "-",
               of_total(w.blocks - w.blocks_free, w.blocks), std::to_string(w.blocks_quarantined),
               std::to_string(w.queued), std::to_string(w.running), count_text(w.steps),
               duration_text(w.beat_age_us) + " ago"});
  }
  std::printf("%s\n", table.text(may_colour(stdout)).c_str());
  print_counts("requests:", s.requests);
  print_counts("leases:  ", s.leases);
  print_counts("counters:", s.counters);
  return kOk;
}

}  // namespace baton::cli
