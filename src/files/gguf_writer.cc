#include "files/gguf_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "files/gguf_format.h"

namespace quire {
namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void put_text(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out.append(text);
}

}  // namespace

GgufEncoded gguf_encode(std::string_view text) {
  GgufEncoded encoded{.type = static_cast<uint32_t>(GgufType::kString), .bytes = {}};
  put_text(encoded.bytes, text);
  return encoded;
}

GgufEncoded gguf_encode(const char* text) {
  return gguf_encode(std::string_view(text));
}

GgufEncoded gguf_encode_array(uint32_t element_type, std::span<const GgufEncoded> elements) {
  GgufEncoded encoded{.type = static_cast<uint32_t>(GgufType::kArray), .bytes = {}};
  put(encoded.bytes, element_type);
  put<uint64_t>(encoded.bytes, elements.size());
  for (const GgufEncoded& element : elements) {
    CHECK(element.type == element_type);
    encoded.bytes += element.bytes;
  }
  return encoded;
}

GgufWriter& GgufWriter::add_encoded(std::string key, GgufEncoded value) {
  pairs_.emplace_back(std::move(key), std::move(value));
  return *this;
}

GgufWriter& GgufWriter::set_encoded(const std::string& key, GgufEncoded value) {
  auto found = std::ranges::find(pairs_, key, &std::pair<std::string, GgufEncoded>::first);
  if (found == pairs_.end()) return add_encoded(key, std::move(value));
  found->second = std::move(value);
  return *this;
}

GgufWriter& GgufWriter::remove(std::string_view key) {
  std::erase_if(pairs_, [&](const auto& pair) { return pair.first == key; });
  return *this;
}

GgufWriter& GgufWriter::add_tensor(GgufTensorData tensor) {
  tensors_.push_back(std::move(tensor));
  return *this;
}

GgufWriter& GgufWriter::add_tensor_f32(std::string name, std::vector<int64_t> shape,
                                       std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return add_tensor({.name = std::move(name),
                     .type = TensorType::kF32,
                     .shape = std::move(shape),
                     .bytes = {bytes.begin(), bytes.end()}});
}

GgufWriter& GgufWriter::set_alignment(uint32_t alignment) {
  alignment_ = alignment;
  return set("general.alignment", alignment);
}

std::vector<std::byte> GgufWriter::bytes() {
  std::string out;
  offsets_.clear();
  auto mark = [&](std::string field) { offsets_[std::move(field)] = out.size(); };
  mark("magic");
  out += kGgufMagic;
  mark("version");
  put(out, version_);
  mark("tensor_count");
  put<uint64_t>(out, tensors_.size());
  mark("metadata_kv_count");
  put<uint64_t>(out, pairs_.size());
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const auto& [key, value] = pairs_[i];
    mark(fmt::format("metadata_kv[{}].key", i));
    put_text(out, key);
    mark(fmt::format("metadata_kv[{}].value_type", i));
    put(out, value.type);
    mark(key);
    if (value.type == static_cast<uint32_t>(GgufType::kArray)) {
      mark(key + ".element_type");
      offsets_[key + ".count"] = out.size() + sizeof(uint32_t);
    }
    out += value.bytes;
  }
  uint64_t data_offset = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const GgufTensorData& tensor = tensors_[i];
    mark(fmt::format("tensor_infos[{}].name", i));
    put_text(out, tensor.name);
    mark(fmt::format("tensor_infos[{}].n_dimensions", i));
    put(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      mark(fmt::format("tensor_infos[{}].dimensions[{}]", i, d));
      put(out, static_cast<uint64_t>(tensor.shape[tensor.shape.size() - 1 - d]));
    }
    mark(fmt::format("tensor_infos[{}].type", i));
    put(out, static_cast<uint32_t>(tensor.type));
    mark(fmt::format("tensor_infos[{}].offset", i));
    put(out, data_offset);
    data_offset = round_up<uint64_t>(data_offset + tensor.bytes.size(), alignment_);
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    out.resize(round_up<size_t>(out.size(), alignment_));
    mark(fmt::format("data[{}]", i));
    out.append(reinterpret_cast<const char*>(tensors_[i].bytes.data()), tensors_[i].bytes.size());
  }
  const auto view = std::as_bytes(std::span(out));
  return {view.begin(), view.end()};
}

std::optional<uint64_t> GgufWriter::offset_of(const std::string& field) const {
  const auto found = offsets_.find(field);
  if (found == offsets_.end()) return std::nullopt;
  return found->second;
}

Result<void> GgufWriter::write(const std::string& path) {
  const std::vector<std::byte> content = bytes();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) return fail(ErrorCode::kIo, "path", "cannot write {}: {}", path, std::strerror(errno));
  return {};
}

}  // namespace quire
