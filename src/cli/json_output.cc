#include "cli/json_output.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>

namespace quire {
namespace {

namespace json = boost::json;

void append(std::string& out, const json::value& value);

// With a point or an exponent, so that it reads back as a double and never as an integer.
void append_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  out += text;
}

void append_array(std::string& out, const json::array& array) {
  out += '[';
  bool first = true;
  for (const json::value& item : array) {
    if (!first) out += ',';
    first = false;
    append(out, item);
  }
  out += ']';
}

void append_object(std::string& out, const json::object& object) {
  out += '{';
  bool first = true;
  for (const auto& member : object) {
    if (!first) out += ',';
    first = false;
    out += json::serialize(std::string_view(member.key().data(), member.key().size()));
    out += ':';
    append(out, member.value());
  }
  out += '}';
}

void append(std::string& out, const json::value& value) {
  switch (value.kind()) {
    case json::kind::array:
      append_array(out, value.get_array());
      break;
    case json::kind::object:
      append_object(out, value.get_object());
      break;
    case json::kind::double_:
      append_double(out, value.get_double());
      break;
    default:
      out += json::serialize(value);
      break;
  }
}

}  // namespace

std::string to_json(const json::value& value) {
  std::string out;
  append(out, value);
  return out;
}

double json_float(float value) {
  if (!std::isfinite(value)) return value;
  std::string text = fmt::format("{}", value);
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace quire
