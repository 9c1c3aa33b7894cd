// Ctrl-C, as `quire run` wants it.
#pragma once

#include <mutex>
#include <thread>

#include "quire/engine.h"

namespace quire {

// Owns the handler of SIGINT while it lives; at most one exists. Made by the command's thread before anything
// slow. Invariants: (1) with nobody listening, SIGINT ends the process with status 130; (2) with a stream it
// cancels that stream; (3) with a line reader it makes prompt_fd() readable. Cost: a thread that sleeps.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // While it lives, SIGINT cancels `stream`.
  class StreamGuard {
   public:
    StreamGuard(Interrupts& interrupts, TokenStream& stream);
    ~StreamGuard();
    StreamGuard(const StreamGuard&) = delete;
    StreamGuard& operator=(const StreamGuard&) = delete;

   private:
    Interrupts& interrupts_;
  };

  // While it lives, SIGINT neither ends the process nor cancels: prompt_fd() becomes readable.
  class PromptGuard {
   public:
    explicit PromptGuard(Interrupts& interrupts);
    ~PromptGuard();
    PromptGuard(const PromptGuard&) = delete;
    PromptGuard& operator=(const PromptGuard&) = delete;

   private:
    Interrupts& interrupts_;
  };

  [[nodiscard]] int prompt_fd() const;
  // Takes back what prompt_fd() told; true when there was an interrupt.
  bool take_prompt_interrupt();

 private:
  void watch();

  std::mutex mutex_;
  TokenStream* stream_ = nullptr;  // under mutex_
  std::thread watcher_;
};

// Makes this process the terminal's foreground group of its own, when it is not the leader of one already (as
// under make or a script): Ctrl-C then reaches nobody else. The destructor gives the terminal back.
class ForegroundGroup {
 public:
  ForegroundGroup();
  ~ForegroundGroup();
  ForegroundGroup(const ForegroundGroup&) = delete;
  ForegroundGroup& operator=(const ForegroundGroup&) = delete;

 private:
  int former_group_ = 0;  // 0: nothing was changed
};

}  // namespace quire
