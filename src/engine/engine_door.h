// Where requests come in.
#pragma once

#include <future>
#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "core/ids.h"
#include "engine/cache_scopes.h"
#include "engine/inbox.h"
#include "engine/seq_ids.h"
#include "quire/engine.h"
#include "sched/scheduler.h"
#include "text/tokenizer.h"

namespace quire {

// What the door looks at; the pointers outlive it.
struct DoorParts {
  const Scheduler* scheduler = nullptr;  // check_admissible() alone
  std::shared_ptr<Inbox> inbox;
  std::shared_ptr<const Tokenizer> tokenizer;
  const Clock* clock = nullptr;
  SeqIds* seq_ids = nullptr;
  CacheScopes* scopes = nullptr;
  int vocab_size = 0;
  int sequences_max = 1;  // that may run at once
};

// A request that is in the inbox.
struct AcceptedRequest {
  SeqId seq;  // its first sequence
  TokenStream stream;
};

// Checks requests, names them and lays them into the inbox. Any thread; waits for nobody.
class EngineDoor {
 public:
  explicit EngineDoor(DoorParts parts) : parts_(std::move(parts)) {}

  // Errors: those of Engine::submit().
  [[nodiscard]] Result<AcceptedRequest> submit(Request request);
  // Answered in the beat that carries it out. Errors: those of PrefixPins; kNotFound when the prefix is not
  // computed.
  [[nodiscard]] std::future<Result<PinId>> order_pin(PrefixPin pin);
  [[nodiscard]] std::future<Result<PinId>> order_unpin(PinId pin);

 private:
  [[nodiscard]] int prefill_chunk(const Request& request) const;

  const DoorParts parts_;
};

}  // namespace quire
