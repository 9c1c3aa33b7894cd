#include "cli/interrupts.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/check.h"
#include "cli/commands.h"

namespace quire {
namespace {

// What the handler may touch: descriptors and counters, nothing that locks.
std::atomic<int> watcher_event{-1};
std::atomic<int> prompt_event{-1};
std::atomic<int> listeners{0};

void ring(int event) {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(event, &one, sizeof(one));
}

void on_interrupt(int) {
  int saved = errno;
  if (listeners.load() == 0) _exit(kExitInterrupted);
  ring(watcher_event.load());
  ring(prompt_event.load());
  errno = saved;
}

}  // namespace

Interrupts::Interrupts() {
  watcher_event = eventfd(0, EFD_CLOEXEC);
  prompt_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  CHECK(watcher_event >= 0 && prompt_event >= 0);
  watcher_ = std::thread([this] { watch(); });
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

Interrupts::~Interrupts() {
  signal(SIGINT, SIG_DFL);
  listeners = -1;  // the watcher ends
  ring(watcher_event);
  watcher_.join();
  listeners = 0;
  close(watcher_event.exchange(-1));
  close(prompt_event.exchange(-1));
}

void Interrupts::watch() {
  uint64_t count = 0;
  while (true) {
    ssize_t got = read(watcher_event, &count, sizeof(count));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || listeners < 0) return;
    std::lock_guard lock(mutex_);
    if (stream_ != nullptr) stream_->cancel();
  }
}

int Interrupts::prompt_fd() const {
  return prompt_event;
}

bool Interrupts::take_prompt_interrupt() {
  uint64_t count = 0;
  return read(prompt_event, &count, sizeof(count)) == sizeof(count);
}

Interrupts::StreamGuard::StreamGuard(Interrupts& interrupts, TokenStream& stream) : interrupts_(interrupts) {
  std::lock_guard lock(interrupts_.mutex_);
  interrupts_.stream_ = &stream;
  ++listeners;
  // In a chat the interrupt may have come between the prompt and this answer.
  if (interrupts_.take_prompt_interrupt()) stream.cancel();
}

Interrupts::StreamGuard::~StreamGuard() {
  std::lock_guard lock(interrupts_.mutex_);
  interrupts_.stream_ = nullptr;
  --listeners;
}

Interrupts::PromptGuard::PromptGuard(Interrupts& interrupts) : interrupts_(interrupts) {
  ++listeners;
  interrupts_.take_prompt_interrupt();  // one that was meant for the answer before
}

Interrupts::PromptGuard::~PromptGuard() {
  --listeners;
}

ForegroundGroup::ForegroundGroup() {
  if (getpgrp() == getpid()) return;
  int former = tcgetpgrp(STDIN_FILENO);
  if (former != getpgrp() || setpgid(0, 0) != 0) return;
  // The kernel stops a background process that takes the terminal, unless it ignores SIGTTOU.
  signal(SIGTTOU, SIG_IGN);
  signal(SIGTSTP, SIG_IGN);  // no shell watches this group: stopped, it would never come back
  if (tcsetpgrp(STDIN_FILENO, getpgrp()) == 0) {
    former_group_ = former;
  } else {
    setpgid(0, former);
  }
}

ForegroundGroup::~ForegroundGroup() {
  if (former_group_ > 0) tcsetpgrp(STDIN_FILENO, former_group_);
}

}  // namespace quire
