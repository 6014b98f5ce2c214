#include "actors/scheduler/prefix_directory.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace baton {

const std::vector<WorkerKey>* PrefixDirectory::at(const PrefixHash& name) const {
  if (const auto found = young_.find(name); found != young_.end()) return &found->second;
  if (const auto found = old_.find(name); found != old_.end()) return &found->second;
  return nullptr;
}

void PrefixDirectory::note(std::span<const PrefixHash> names, WorkerKey instance) {
  if (half_ == 0) return;
  for (const PrefixHash& name : names) {
    if (!young_.contains(name) && young_.size() >= half_) {
      old_ = std::move(young_);
      young_.clear();
    }
    std::vector<WorkerKey>& instances = young_[name];
    if (const auto before = old_.find(name); before != old_.end()) {
      instances = std::move(before->second);
      old_.erase(before);
    }
    std::erase(instances, instance);
    if (instances.size() >= kInstancesMax) instances.erase(instances.begin());
    instances.push_back(instance);
  }
}

void PrefixDirectory::forget(WorkerKey instance) {
  for (Names* names : {&young_, &old_}) {
    for (auto entry = names->begin(); entry != names->end();) {
      std::erase(entry->second, instance);
      entry = entry->second.empty() ? names->erase(entry) : std::next(entry);
    }
  }
}

std::vector<PrefixDirectory::Known> PrefixDirectory::find(
    std::span<const PrefixHash> names, size_t count,
    const std::function<bool(WorkerKey)>& matches) const {
  std::vector<Known> known;
  for (size_t depth = names.size(); depth > 0 && known.size() < count; --depth) {
    const std::vector<WorkerKey>* instances = at(names[depth - 1]);
    if (!instances) continue;
    for (auto latest = instances->rbegin(); latest != instances->rend(); ++latest) {
      const bool seen = std::any_of(known.begin(), known.end(),
                                    [&](const Known& k) { return k.instance == *latest; });
      if (seen || known.size() >= count || !matches(*latest)) continue;
      known.push_back({*latest, uint64_t{depth} * kBlockTokens});
    }
  }
  return known;
}

}  // namespace baton
