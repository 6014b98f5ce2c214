#include "runtime/actor/timer_table.h"

#include "runtime/actor/wire.h"

namespace baton {

TimerId TimerTable::add(const Entry& entry) {
  const uint64_t id = next_id_++;
  entries_.emplace(id, entry);
  dues_.emplace(entry.due, id);
  return {id};
}

void TimerTable::cancel(TimerId id) {
  const auto found = entries_.find(id.value);
  if (found == entries_.end()) return;
  dues_.erase({found->second.due, id.value});
  entries_.erase(found);
}

void TimerTable::cancel_all(const ActorId& owner) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (it->second.owner == owner) {
      dues_.erase({it->second.due, it->first});
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
}

std::optional<Micros> TimerTable::next_due() const {
  if (dues_.empty()) return std::nullopt;
  return dues_.begin()->first;
}

std::vector<Mail> TimerTable::expire(Micros now) {
  std::vector<Mail> mails;
  while (!dues_.empty() && dues_.begin()->first <= now) {
    const uint64_t id = dues_.begin()->second;
    dues_.erase(dues_.begin());
    Entry& entry = entries_.at(id);
    entry.fired = true;
    Mail mail;
    mail.envelope.kind = MsgKind::timer;
    mail.envelope.from = entry.owner;
    mail.envelope.to = entry.owner;
    mail.envelope.correlation = id;
    mail.body = encode_body(Timer{{id}, entry.purpose, entry.key});
    mails.push_back(std::move(mail));
  }
  return mails;
}

bool TimerTable::take(TimerId id) {
  const auto found = entries_.find(id.value);
  if (found == entries_.end() || !found->second.fired) return false;
  entries_.erase(found);
  return true;
}

}  // namespace baton
