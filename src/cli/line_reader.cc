#include "cli/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <utility>

#include "cli/output.h"

namespace quire {
namespace {

constexpr int kHistoryLines = 1000;
constexpr int kEnd = -1;
constexpr int kInterrupt = -2;

// Line editing counts characters, so it needs a UTF-8 locale even where none is set.
void use_utf8_locale() {
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

LineReader::LineReader(Interrupts& interrupts) : interrupts_(interrupts) {
  if (!stdin_is_terminal() || !stdout_is_terminal()) return;
  use_utf8_locale();
  editor_.reset(el_init("quire", stdin, stdout, stderr));
  if (editor_ == nullptr) return;
  history_.reset(history_init());
  HistEvent event;
  history(history_.get(), &event, H_SETSIZE, kHistoryLines);
  history(history_.get(), &event, H_SETUNIQUE, 1);
  el_set(editor_.get(), EL_CLIENTDATA, this);
  el_set(editor_.get(), EL_PROMPT, &LineReader::prompt_of);
  el_set(editor_.get(), EL_EDITOR, "emacs");
  el_set(editor_.get(), EL_SIGNAL, 1);  // window size, stop and continue, a clean terminal when ended
  el_set(editor_.get(), EL_HIST, ::history, history_.get());
  el_set(editor_.get(), EL_GETCFN, &LineReader::read_character);
  el_set(editor_.get(), EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineReader::~LineReader() = default;

char* LineReader::prompt_of(EditLine* editor) {
  LineReader* self = nullptr;
  el_get(editor, EL_CLIENTDATA, &self);
  return const_cast<char*>(self->prompt_);
}

int LineReader::next_byte() {
  if (kept_byte_) return *std::exchange(kept_byte_, std::nullopt);
  pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {interrupts_.prompt_fd(), POLLIN, 0}};
  while (true) {
    if (poll(waits, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return kEnd;
    }
    if (waits[1].revents != 0 && interrupts_.take_prompt_interrupt()) return kInterrupt;
    if (waits[0].revents == 0) continue;
    unsigned char byte = 0;
    ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got == 1) return byte;
    if (got < 0 && errno == EINTR) continue;
    return kEnd;
  }
}

// libedit's contract: 1 and a character, 0 at the end, -1 on a fault.
int LineReader::read_character(EditLine* editor, wchar_t* character) {
  LineReader* self = nullptr;
  el_get(editor, EL_CLIENTDATA, &self);
  std::mbstate_t state = {};
  for (int taken = 0;; ++taken) {
    int byte = self->next_byte();
    if (byte == kEnd) return 0;
    if (byte == kInterrupt) {
      self->interrupted_ = true;
      errno = EINTR;
      return -1;
    }
    char text = static_cast<char>(byte);
    size_t used = std::mbrtowc(character, &text, 1, &state);
    if (used == static_cast<size_t>(-2)) continue;
    if (used == static_cast<size_t>(-1)) {
      // The byte that broke a character may well begin the next: a line end must not be lost.
      if (taken > 0) self->kept_byte_ = byte;
      *character = L'\uFFFD';
    }
    return 1;
  }
}

LineInput LineReader::read_plain_line() {
  LineInput input;
  int c = 0;
  while ((c = std::getc(stdin)) != EOF) {
    input.kind = LineInput::Kind::kLine;
    if (c == '\n') return input;
    input.text += static_cast<char>(c);
  }
  return input;
}

LineInput LineReader::read_line(const char* prompt) {
  if (editor_ == nullptr) return read_plain_line();
  prompt_ = prompt;
  interrupted_ = false;
  Interrupts::PromptGuard guard(interrupts_);
  // Before the prompt appears: what is typed at once must not meet the terminal's own line editing.
  el_set(editor_.get(), EL_PREP_TERM, 1);
  int count = 0;
  const char* text = el_gets(editor_.get(), &count);
  if (interrupted_) {
    el_reset(editor_.get());
    std::fputs("\n", stdout);
    return {LineInput::Kind::kInterrupted, ""};
  }
  if (text == nullptr || count <= 0) {
    std::fputs("\n", stdout);
    return {LineInput::Kind::kEnd, ""};
  }
  std::string line(text, static_cast<size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  HistEvent event;
  if (!line.empty()) history(history_.get(), &event, H_ENTER, line.c_str());
  return {LineInput::Kind::kLine, std::move(line)};
}

LineInput LineReader::read() {
  std::string text;
  const char* prompt = "> ";
  while (true) {
    LineInput line = read_line(prompt);
    if (line.kind != LineInput::Kind::kLine) return line;
    if (!line.text.ends_with('\\')) return {LineInput::Kind::kLine, text + line.text};
    line.text.back() = '\n';
    text += line.text;
    prompt = ". ";
  }
}

}  // namespace quire
