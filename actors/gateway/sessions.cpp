#include "actors/gateway/sessions.h"

#include <utility>

#include "runtime/base/check.h"

namespace baton {

Session* Sessions::at(const ActorId& address) {
  const auto found = addresses_.find(address);
  return found == addresses_.end() ? nullptr : find(found->second);
}

Session* Sessions::find(SessionId id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : &found->second;
}

Session* Sessions::find(const std::string& token) {
  const auto found = tokens_.find(token);
  return found == tokens_.end() ? nullptr : find(found->second);
}

Session* Sessions::replaceable() {
  Session* best = nullptr;
  for (auto& [id, session] : sessions_) {
    if (!session.abandoned || session.live > 0) continue;
    if (best == nullptr || session.detached_at < best->detached_at) best = &session;
  }
  return best;
}

Session& Sessions::open(const ActorId& address, const std::string& token,
                        const std::string& client) {
  CHECK(!full());
  CHECK(!addresses_.contains(address));
  const SessionId id{++last_id_};
  const bool is_new = tokens_.emplace(token, id).second;
  CHECK(is_new);
  addresses_.emplace(address, id);
  Session& session = sessions_[id];
  session.id = id;
  session.token = token;
  session.client = client;
  session.address = address;
  return session;
}

void Sessions::attach(Session& session, const ActorId& address) {
  CHECK(!addresses_.contains(address));
  if (session.address) addresses_.erase(*session.address);
  addresses_.emplace(address, session.id);
  session.address = address;
  session.abandoned = false;
  for (auto& [number, job] : session.jobs) {
    forget_unacked(session, job);
    job.must_fetch = true;
  }
}

void Sessions::detach(Session& session, Micros now) {
  CHECK(session.address.has_value());
  addresses_.erase(*session.address);
  session.address.reset();
  session.detached_at = now;
}

void Sessions::erase(SessionId id) {
  Session* session = find(id);
  CHECK(session != nullptr);
  if (session->address) addresses_.erase(*session->address);
  tokens_.erase(session->token);
  sessions_.erase(id);
}

Job& Sessions::add_job(Session& session, uint64_t number, Job job) {
  const auto [at, is_new] = session.jobs.emplace(number, std::move(job));
  CHECK(is_new);
  return at->second;
}

void Sessions::erase_job(Session& session, uint64_t number) {
  const auto found = session.jobs.find(number);
  CHECK(found != session.jobs.end());
  forget_unacked(session, found->second);
  session.backlog.erase(number);
  session.jobs.erase(found);
}

bool Sessions::blocked(const Session& session) const {
  return session.unacked_bytes >= limits_.stream_bytes_max;
}

void Sessions::note_sent(Session& session, Job& job, const Job::Part& part) {
  job.unacked.push_back(part);
  session.unacked_bytes += part.bytes;
}

size_t Sessions::acknowledge(Session& session, Job& job, const std::vector<uint32_t>& next) {
  size_t freed = 0;
  std::erase_if(job.unacked, [&](const Job::Part& part) {
    const bool there = part.choice < next.size() && part.next <= next[part.choice];
    if (there) freed += part.bytes;
    return there;
  });
  CHECK(freed <= session.unacked_bytes);
  session.unacked_bytes -= freed;
  return freed;
}

void Sessions::rewind(Session& session, Job& job, const std::vector<uint32_t>& next) {
  forget_unacked(session, job);
  for (size_t c = 0; c < job.cursors.size(); ++c) {
    job.cursors[c] = {c < next.size() ? next[c] : 0, false};
  }
}

void Sessions::forget_unacked(Session& session, Job& job) {
  for (const Job::Part& part : job.unacked) session.unacked_bytes -= part.bytes;
  job.unacked.clear();
}

}  // namespace baton
