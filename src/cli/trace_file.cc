#include "cli/trace_file.h"

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "cli/text_input.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr std::array kAzureFields{"TIMESTAMP", "ContextTokens", "GeneratedTokens"};
constexpr int64_t kLengthMax = 1 << 24;
constexpr int kMooncakeBlockTokens = 512;
constexpr double kTimestampMax = 1e12;  // ms: some thirty years

// Where a line stands, and faults of it.
struct Line {
  const std::string& file;
  size_t number;  // from 1
  std::string_view text;

  template <class... Args>
  [[nodiscard]] std::unexpected<Error> fault(const char* field, fmt::format_string<Args...> text_of_fault,
                                             Args&&... args) const {
    return fail(ErrorCode::kCorruptFile, field, "{}:{}: {}: {}", file, number, field,
                fmt::format(text_of_fault, std::forward<Args>(args)...));
  }
};

Result<int> checked_length(const Line& line, const char* field, int64_t value) {
  if (value >= 1 && value <= kLengthMax) return static_cast<int>(value);
  return line.fault(field, "{} is out of range, must be [1, {}]", value, kLengthMax);
}

Result<int> csv_length(const Line& line, const char* field, std::string_view text) {
  int64_t value = 0;
  auto [stop, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc{} || stop != text.data() + text.size())
    return line.fault(field, "'{}' is not a whole number", text);
  return checked_length(line, field, value);
}

// "2023-11-16 18:15:46.6805900", the fraction optional, as milliseconds since 1970.
std::optional<double> parse_time(std::string_view text) {
  constexpr std::string_view kShape = "dddd-dd-dd dd:dd:dd";
  if (text.size() < kShape.size()) return std::nullopt;
  for (size_t i = 0; i < kShape.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kShape[i] == 'd' ? !digit : text[i] != kShape[i]) return std::nullopt;
  }
  const auto number = [text](size_t begin, size_t count) {
    int value = 0;
    std::from_chars(text.data() + begin, text.data() + begin + count, value);
    return value;
  };
  const std::chrono::year_month_day date{std::chrono::year(number(0, 4)),
                                         std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                         std::chrono::day(static_cast<unsigned>(number(8, 2)))};
  if (!date.ok() || number(11, 2) > 23 || number(14, 2) > 59 || number(17, 2) > 60) return std::nullopt;
  double fraction = 0;
  if (text.size() > kShape.size()) {
    const char* end = text.data() + text.size();
    auto [stop, fault] =
        std::from_chars(text.data() + kShape.size(), end, fraction, std::chars_format::fixed);
    if (text[kShape.size()] != '.' || fault != std::errc{} || stop != end) return std::nullopt;
  }
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  const int64_t seconds = (int64_t{days} * 24 + number(11, 2)) * 3600 + number(14, 2) * 60 + number(17, 2);
  return (static_cast<double>(seconds) + fraction) * 1e3;
}

Result<TracedRequest> parse_azure(const Line& line) {
  std::array<std::string_view, kAzureFields.size()> cells;
  std::string_view rest = line.text;
  for (size_t i = 0; i < cells.size(); ++i) {
    const size_t comma = rest.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == cells.size()))
      return line.fault(kAzureFields[i], "'{}' has not {} cells", line.text, cells.size());
    cells[i] = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  const std::optional<double> at_ms = parse_time(cells[0]);
  if (!at_ms)
    return line.fault(kAzureFields[0], "'{}' is not a time like {}", cells[0], "2023-11-16 18:15:46.68");
  TracedRequest request{.arrival_ms = *at_ms};
  request.prompt_tokens = TRY(csv_length(line, kAzureFields[1], cells[1]));
  request.output_tokens = TRY(csv_length(line, kAzureFields[2], cells[2]));
  return request;
}

Result<const json::value*> member(const Line& line, const json::object& object, const char* field) {
  const json::value* value = object.if_contains(field);
  if (value == nullptr) return line.fault(field, "is missing");
  return value;
}

Result<int> json_length(const Line& line, const json::object& object, const char* field) {
  const json::value& value = *TRY(member(line, object, field));
  if (!value.is_int64()) return line.fault(field, "{} is not a whole number", json::serialize(value));
  return checked_length(line, field, value.get_int64());
}

Result<double> json_time(const Line& line, const json::object& object) {
  const json::value& value = *TRY(member(line, object, "timestamp"));
  const double at_ms = value.is_int64()    ? static_cast<double>(value.get_int64())
                       : value.is_double() ? value.get_double()
                                           : -1.0;
  if (at_ms >= 0 && at_ms <= kTimestampMax) return at_ms;
  return line.fault("timestamp", "{} is no time in ms, must be [0, {}]", json::serialize(value),
                    kTimestampMax);
}

Result<std::vector<int64_t>> json_block_ids(const Line& line, const json::object& object, int prompt_tokens) {
  const json::value& value = *TRY(member(line, object, "hash_ids"));
  if (!value.is_array()) return line.fault("hash_ids", "{} is not a list", json::serialize(value));
  std::vector<int64_t> ids;
  for (const json::value& id : value.get_array()) {
    if (!id.is_int64()) return line.fault("hash_ids", "{} is not a whole number", json::serialize(id));
    ids.push_back(id.get_int64());
  }
  if (std::ssize(ids) != ceil_div(prompt_tokens, kMooncakeBlockTokens)) {
    return line.fault("hash_ids", "{} ids for {} tokens, must be {}: one for {} tokens", ids.size(),
                      prompt_tokens, ceil_div(prompt_tokens, kMooncakeBlockTokens), kMooncakeBlockTokens);
  }
  return ids;
}

Result<TracedRequest> parse_mooncake(const Line& line) {
  boost::system::error_code fault;
  const json::value value = json::parse(json::string_view(line.text.data(), line.text.size()), fault);
  if (fault || !value.is_object()) return line.fault("line", "'{:.60}' is not a JSON object", line.text);
  const json::object& object = value.get_object();
  TracedRequest request;
  request.arrival_ms = TRY(json_time(line, object));
  request.prompt_tokens = TRY(json_length(line, object, "input_length"));
  request.output_tokens = TRY(json_length(line, object, "output_length"));
  request.block_ids = TRY(json_block_ids(line, object, request.prompt_tokens));
  return request;
}

}  // namespace

Result<RequestTrace> parse_trace(std::string_view text, const std::string& name) {
  RequestTrace trace{.requests = {}, .block_tokens = kMooncakeBlockTokens};
  const bool is_csv = !text.starts_with('{');
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    Line line{.file = name, .number = ++number, .text = text.substr(0, end)};
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.text.ends_with('\r')) line.text.remove_suffix(1);
    if (is_csv && number == 1) {
      if (line.text == kAzureHeader) continue;
      return line.fault("header", "'{:.60}' is neither a JSON object nor '{}'", line.text, kAzureHeader);
    }
    if (line.text.empty()) continue;
    TracedRequest request = TRY(is_csv ? parse_azure(line) : parse_mooncake(line));
    if (!trace.requests.empty() && request.arrival_ms < trace.requests.back().arrival_ms) {
      return line.fault(is_csv ? kAzureFields[0] : "timestamp", "is {} ms before the line above",
                        trace.requests.back().arrival_ms - request.arrival_ms);
    }
    trace.requests.push_back(std::move(request));
  }
  if (trace.requests.empty()) return fail(ErrorCode::kCorruptFile, "", "{}: it has no request", name);
  const double first_ms = trace.requests.front().arrival_ms;
  for (TracedRequest& request : trace.requests) request.arrival_ms -= first_ms;
  return trace;
}

Result<RequestTrace> read_trace_file(const std::string& path) {
  return parse_trace(TRY(read_text_file(path)), path);
}

}  // namespace quire
