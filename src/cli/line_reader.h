// Lines from a person: editing, history and Ctrl-C on a terminal; plain lines elsewhere.
#pragma once

#include <histedit.h>

#include <memory>
#include <optional>
#include <string>

#include "cli/interrupts.h"

namespace quire {

struct LineInput {
  enum class Kind { kLine, kInterrupted, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;  // of kLine, without its end; lines joined by '\n' where one ended in a backslash
};

// Reads stdin by libedit when stdin and stdout are a terminal. One thread. Waiting costs no CPU.
class LineReader {
 public:
  explicit LineReader(Interrupts& interrupts);  // which outlives it
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  [[nodiscard]] bool is_interactive() const { return editor_ != nullptr; }
  // The next input, which may span lines.
  LineInput read();

 private:
  struct EditorEnd {
    void operator()(EditLine* editor) const { el_end(editor); }
  };
  struct HistoryEnd {
    void operator()(History* history) const { history_end(history); }
  };

  LineInput read_line(const char* prompt);
  LineInput read_plain_line();
  static char* prompt_of(EditLine* editor);
  static int read_character(EditLine* editor, wchar_t* character);
  int next_byte();

  Interrupts& interrupts_;
  ForegroundGroup foreground_;
  std::unique_ptr<History, HistoryEnd> history_;
  std::unique_ptr<EditLine, EditorEnd> editor_;
  std::optional<int> kept_byte_;  // read, but not yet part of a character
  const char* prompt_ = "";
  bool interrupted_ = false;
};

}  // namespace quire
