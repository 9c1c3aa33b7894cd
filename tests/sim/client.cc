#include "tests/sim/client.h"

#include <algorithm>
#include <utility>

namespace quire::sim {
namespace {

constexpr size_t kHistoryMax = 64;
constexpr int kAbsurd = std::numeric_limits<int>::max();

}  // namespace

Tokens Clients::draw_prompt() {
  if (!last_prompt_.empty() && below(5) == 0) return last_prompt_;
  if (!history_.empty() && below(3) == 0) {
    Tokens prompt = history_[static_cast<size_t>(below(static_cast<int>(history_.size())))];
    for (int more = 1 + below(6); more > 0; --more) prompt.push_back(below(kEos));
    return prompt;
  }
  Tokens prompt(static_cast<size_t>(1 + below(40)), below(2));
  for (TokenId& token : prompt)
    if (below(12) == 0) token = below(kEos);
  if (below(40) == 0) prompt[static_cast<size_t>(below(static_cast<int>(prompt.size())))] = kBroken;
  if (below(60) == 0) prompt.back() = kBroken;
  return prompt;
}

Client Clients::draw() {
  Client client;
  Request& request = client.request;
  request.prompt_token_ids = last_prompt_ = draw_prompt();
  draw_sampling(request.sampling);
  if (below(10) >= 7) draw_choices(request);
  request.sampling.min_tokens = std::min(request.sampling.min_tokens, request.sampling.max_tokens);
  request.priority = below(world_.priorities);
  request.cache_salt = draw_salt();
  request.prefill_chunk_tokens = below(3) == 0 ? 1 + below(9) : 0;
  if (below(6) == 0) request.prompt_logprobs = below(4);
  if (world_.pinned_blocks_max > 0 && below(6) == 0) {
    request = {.prompt_token_ids = request.prompt_token_ids,
               .sampling = {.max_tokens = 0},
               .cache_salt = request.cache_salt};
    client.pin_ms = 1 + below(300);
  }
  draw_patience(client);
  if (below(40) == 0) make_impossible(request);
  return client;
}

void Clients::draw_sampling(SamplingParams& sampling) {
  sampling.max_tokens = below(3) == 0 ? below(5) : below(45);
  sampling.seed = rng_();
  sampling.ignore_eos = below(4) > 0;
  if (below(3) > 0) sampling.temperature = 0.5f * static_cast<float>(below(4));
  if (below(6) == 0) sampling.top_k = 1 + below(5);
  if (below(6) == 0) sampling.top_p = 0.9f;
  if (below(8) == 0) sampling.frequency_penalty = 0.5f;
  if (below(8) == 0) sampling.repetition_penalty = 1.5f;
  if (below(8) == 0) sampling.min_tokens = below(6);
  if (below(12) == 0) sampling.stop_token_ids = {below(kEos)};
  if (below(8) == 0) sampling.stop = {"ab", "fa"};
  if (below(16) == 0) sampling.stop = {"c", "cdd", "bcd"};
}

void Clients::draw_choices(Request& request) {
  SamplingParams& sampling = request.sampling;
  sampling.max_tokens = below(24);
  request.n = 1 + below(4);
  const int use = below(3);
  if (use == 0) return;
  if (use == 1) {
    request.best_of = request.n + below(3);
    return;
  }
  BeamSearchParams& beam = request.beam.emplace();
  beam.width = request.n + below(2);
  beam.length_penalty = static_cast<float>(below(4)) - 1;
  beam.early_stopping = static_cast<EarlyStopping>(below(3));
  if (beam.width % 2 == 0 && below(2) == 0) {
    beam.groups = 2;
    beam.diversity_penalty = static_cast<float>(below(2));
  }
  sampling.temperature = 0;
  sampling.top_k = 0;
  sampling.top_p = 1;
}

void Clients::draw_patience(Client& client) {
  if (below(4) == 0) {
    client.read_every = 2 + below(8);
    client.read_most = 1 + below(3);
  } else if (below(10) == 0) {
    client.read_every = kAbsurd;  // only when all is there
  }
  client.exit = below(2) == 0 ? Client::Exit::kCancels : Client::Exit::kDropsStream;
  if (below(3) == 0) {  // most of them at the stage that few come to
    client.leaves = Client::Leaves::kAtStage;
    client.leave_at = below(2) == 0 ? Stage::kPreempted : static_cast<Stage>(below(kStages));
  }
  if (below(12) == 0) client.leave_after_beats = below(40);
  if (below(12) == 0) client.leave_after_tokens = below(8);
}

void Clients::make_impossible(Request& request) {
  switch (below(10)) {
    case 0:
      request.prompt_token_ids.clear();
      break;
    case 1:
      request.prompt_token_ids.resize(4096, 1);
      break;
    case 2:
      request.prompt_token_ids.back() = below(2) == 0 ? -1 : kVocab;
      break;
    case 3:
      request.sampling.max_tokens = below(2) == 0 ? -1 : kAbsurd;
      break;
    case 4:
      request.n = below(2) == 0 ? 0 : kAbsurd;
      break;
    case 5:
      request.priority = below(2) == 0 ? -kAbsurd : kAbsurd;
      break;
    case 6:
      request.prefill_chunk_tokens = -kAbsurd;
      break;
    case 7:
      request.best_of = below(2) == 0 ? -1 : 1000;
      break;
    case 8:
      request.beam = BeamSearchParams{.width = below(2) == 0 ? 0 : 1000};
      break;
    default:
      request.sampling.max_tokens = 59;  // with most prompts more than the context
      break;
  }
}

Tokens Clients::draw_prefix() {
  if (history_.empty()) return {};
  Tokens prefix = history_[static_cast<size_t>(below(static_cast<int>(history_.size())))];
  prefix.resize(static_cast<size_t>(below(static_cast<int>(prefix.size()) + 1)));
  return prefix;
}

std::string Clients::leave_salt() {
  std::string left = salt();
  ++salts_left_;
  return left;
}

void Clients::remember(Tokens tokens) {
  if (history_.size() < kHistoryMax) {
    history_.push_back(std::move(tokens));
  } else {
    history_[static_cast<size_t>(below(static_cast<int>(kHistoryMax)))] = std::move(tokens);
  }
}

}  // namespace quire::sim
