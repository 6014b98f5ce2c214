// How the scheduler names what prefix caches keep, and prompts that decode instances compute
// themselves.

#include <algorithm>

#include "actors/scheduler/scheduler.h"

namespace baton {

// Names without blocks; none where caching is off.
PrefixNames Scheduler::names_of(const LedgerRow& row, const Worker& computes,
                                const Worker& keeps) const {
  PrefixNames names;
  if (!options_.prefix_cache) return names;
  PrefixScope scope;
  scope.tenant = row.ask.tenant;
  scope.weights_version = row.weights;
  scope.source_numerics = computes.info.numerics_id;
  scope.target_numerics = keeps.info.numerics_id;
  scope.secret = prefix_secret_;
  names.root = prefix_root(scope);
  names.weights_version = scope.weights_version;
  return names;
}

// How a prompt's beginning is called when instances are chosen: of no instance in particular.
std::vector<PrefixHash> Scheduler::directory_names(const Admit& ask) const {
  if (!options_.prefix_cache) return {};
  PrefixScope scope;
  scope.tenant = ask.tenant;
  scope.secret = prefix_secret_;
  return prefix_chain(prefix_root(scope), ask.ids, PrefixDirectory::kBlockTokens);
}

// Of the positions that are to come. A prompt that is to be scored is computed whole: where the
// target may be who computes it, nothing is looked up.
void Scheduler::name_blocks(Reserve& reserve, const LedgerRow& row, uint32_t block_tokens) const {
  const bool scored = row.ask.sampling.prompt_logprobs >= 0;
  if (!reserve.prefix.named() || (scored && reserve.local_tokens > 0)) return;
  std::vector<TokenId> tokens = row.ask.ids;
  const std::vector<TokenId> committed = row.committed_of(0);
  tokens.insert(tokens.end(), committed.begin(), committed.end());
  tokens.resize(std::min<size_t>(tokens.size(), reserve.tokens));
  reserve.prefix.blocks = prefix_chain(reserve.prefix.root, tokens, block_tokens);
}

// The target computes the prompt itself. Its prefill instance, if one was chosen, never hears of
// the request.
void Scheduler::send_start(Context& context, LedgerRow& row) {
  const Worker& target = *members_.find(*row.target);
  ++counters_.local_prefills;
  note_first_run(context, row, target, target);
  Start start;
  start.transfer = row.transfer;
  start.gateway = row.gateway;
  start.ids = row.ask.ids;
  start.committed = {row.committed_of(0)};
  start.sampling = row.ask.sampling;
  start.stops = row.ask.stops;
  start.usage = row.usage;
  context.send(target.id, start, routing(context, row));
}

}  // namespace baton
