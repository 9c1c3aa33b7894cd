// Where models and packed weights are kept; names of models in the cache.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/model_package.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".gguf";

fs::path cache_folder() {
  if (const char* given = std::getenv("QUIRE_MODELS"); given != nullptr && *given != '\0') return given;
  const char* home = std::getenv("HOME");
  return fs::path(home == nullptr ? "." : home) / ".cache" / "quire" / "models";
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// "-00002-of-00003" at the end of a stem, and the part is not the first.
bool is_later_part(std::string_view stem) {
  constexpr std::string_view kTail = "-00000-of-00000";
  if (stem.size() <= kTail.size()) return false;
  const std::string_view tail = stem.substr(stem.size() - kTail.size());
  for (size_t i = 0; i < kTail.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(tail[i])) != 0;
    if (kTail[i] == '0' ? !digit : tail[i] != kTail[i]) return false;
  }
  return tail.substr(1, 5) != "00001";
}

struct Candidate {
  std::string name;  // as people write it: a file's stem, a folder's name
  fs::path path;
};

// GGUF files (of split ones the first part) and Hugging Face folders, by name.
std::vector<Candidate> list_cache(const fs::path& folder) {
  std::vector<Candidate> candidates;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    const std::string file = path.filename().string();
    std::error_code ignored;
    if (file.starts_with('.')) continue;
    if (lower(file).ends_with(kExtension)) {
      std::string stem = file.substr(0, file.size() - kExtension.size());
      if (!is_later_part(stem)) candidates.push_back({.name = std::move(stem), .path = path});
    } else if (fs::exists(path / "tokenizer.json", ignored) || fs::exists(path / "config.json", ignored)) {
      candidates.push_back({.name = file, .path = path});
    }
  }
  std::ranges::sort(candidates, {}, &Candidate::name);
  return candidates;
}

std::string names_of(const std::vector<Candidate>& candidates) {
  std::string names;
  for (const Candidate& candidate : candidates) {
    if (!names.empty()) names += ", ";
    names += candidate.name;
  }
  return names;
}

// The candidates that fit best: equal names, else names that begin so, else names that contain it.
std::vector<Candidate> best_matches(const std::vector<Candidate>& candidates, const std::string& model) {
  std::string wanted = lower(model);
  if (wanted.ends_with(kExtension)) wanted.resize(wanted.size() - kExtension.size());
  if (wanted.empty()) return {};
  std::vector<Candidate> equal, prefix, inside;
  for (const Candidate& candidate : candidates) {
    const std::string name = lower(candidate.name);
    if (name == wanted) {
      equal.push_back(candidate);
    } else if (name.starts_with(wanted)) {
      prefix.push_back(candidate);
    } else if (name.contains(wanted)) {
      inside.push_back(candidate);
    }
  }
  if (!equal.empty()) return equal;
  return prefix.empty() ? inside : prefix;
}

}  // namespace

std::string default_packed_cache() {
  if (const char* given = std::getenv("QUIRE_PACKED"); given != nullptr && *given != '\0')
    return given == std::string_view("off") ? "" : given;
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : (fs::path(home) / ".cache" / "quire" / "packed").string();
}

Result<std::string> resolve_model(const std::string& model) {
  if (model.empty()) return fail(ErrorCode::kInvalidArgument, "model", "the name of the model is empty");
  std::error_code error;
  if (fs::exists(model, error)) return model;
  if (model.contains('/')) return fail(ErrorCode::kNotFound, "model", "there is no file or folder {}", model);
  const fs::path folder = cache_folder();
  const std::vector<Candidate> candidates = list_cache(folder);
  const std::vector<Candidate> matches = best_matches(candidates, model);
  if (matches.size() == 1) return matches[0].path.string();
  if (matches.size() > 1) {
    return fail(ErrorCode::kInvalidArgument, "model", "model {} is ambiguous, it may be {}", model,
                names_of(matches));
  }
  if (candidates.empty()) {
    return fail(ErrorCode::kNotFound, "model",
                "there is no file {}, and the model cache {} is empty or absent", model, folder.string());
  }
  return fail(ErrorCode::kNotFound, "model", "there is no file {}, and the model cache {} holds only {}",
              model, folder.string(), names_of(candidates));
}

}  // namespace quire
